#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/ctl/json_view.h"
#include "client/ctl/table_view.h"

namespace zerod::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

v1::StatusReply TwoNodes() {
  v1::StatusReply status;
  status.set_node(1);
  status.set_node_count(2);
  status.set_ranks(2);
  status.set_first_rank(1);
  status.set_world_size(3);
  status.set_epoch(4);
  status.set_attached_job("neox");
  status.set_step(12);
  status.set_uptime_s(125);
  status.set_state("training");
  status.set_healthy(true);
  status.set_sent_bytes(3 << 20);
  status.set_gather_sent_bytes(2 << 20);
  status.set_reduce_sent_bytes(1 << 20);
  v1::PeerStatus& peer = *status.add_peers();
  peer.set_address("10.0.0.1:7000");
  peer.set_connected(true);
  peer.set_ranks(1);
  v1::PeerStatus& own = *status.add_peers();
  own.set_node(1);
  own.set_address("10.0.0.2:7000");
  own.set_ranks(2);
  own.set_note("refused");
  return status;
}

v1::JobsReply OneJob() {
  v1::JobsReply jobs;
  v1::JobInfo& job = *jobs.add_jobs();
  job.set_job_id("neox");
  job.set_attached(true);
  job.set_step(12);
  job.set_layers(6);
  job.set_parameters(33'600'000);
  job.set_trainable(33'000'000);
  job.set_state_bytes(int64_t{1} << 30);
  job.set_dp(3);
  job.set_tp(1);
  job.set_plan_hash(0xabc);
  return jobs;
}

TEST(StatusText, ShowsPeersAndBothAxes) {
  const std::string text = StatusText(TwoNodes(), OneJob());
  EXPECT_THAT(text, AllOf(HasSubstr("node 1 of 2  healthy\n"), HasSubstr("1-2 of 3\n"),
                          HasSubstr("dp 3 x tp 1\n"), HasSubstr("neox, step 12, epoch 4\n"),
                          HasSubstr("2 min 5 s\n"), HasSubstr("sent 3.00 MiB (gathers 2.00 MiB")));
  EXPECT_THAT(text, HasSubstr("NODE  ADDRESS        CONNECTED  RANKS  NOTE\n"
                              "   0  10.0.0.1:7000  yes            1\n"
                              "   1  10.0.0.2:7000  no             2  refused\n"));
}

TEST(StatusText, NamesWhatAnIncompleteNodeWaitsFor) {
  v1::StatusReply status = TwoNodes();
  status.set_healthy(false);
  status.set_world_size(0);
  status.set_attached_job("");
  status.set_state("joining");
  status.set_waiting_for("node 0 at 10.0.0.1:7000");
  EXPECT_THAT(StatusText(status, {}),
              AllOf(HasSubstr("unhealthy\n"), HasSubstr("joining, waits for node 0"),
                    HasSubstr("2 local\n"), HasSubstr("none attached\n")));
  EXPECT_EQ(HealthText(status), "unhealthy: waits for node 0 at 10.0.0.1:7000\n");
}

TEST(StatusJson, HoldsRawNumbers) {
  const Json json = Json::parse(StatusJson(TwoNodes(), OneJob()));
  EXPECT_EQ(json["sent_bytes"], 3 << 20);
  EXPECT_EQ(json["dp"], 3);
  EXPECT_EQ(json["tp"], 1);
  EXPECT_EQ(json["peers"].size(), 2u);
  EXPECT_EQ(json["peers"][1]["note"], "refused");
  EXPECT_EQ(json["healthy"], true);
}

TEST(Jobs, AreOneRowEach) {
  EXPECT_EQ(JobsText({}), "no jobs on this node\n");
  EXPECT_THAT(JobsText(OneJob()), AllOf(HasSubstr("neox    12  yes"), HasSubstr("33.6 M"),
                                        HasSubstr("1.00 GiB"), HasSubstr("0000000000000abc\n")));
  const Json json = Json::parse(JobsJson(OneJob()));
  EXPECT_EQ(json["jobs"][0]["parameters"], 33'600'000);
  EXPECT_EQ(json["jobs"][0]["plan_hash"], "0000000000000abc");
  EXPECT_EQ(Json::parse(JobsJson({}))["jobs"], Json::array());
}

TEST(Shards, ShowChecksumsOnlyWhenAsked) {
  v1::ShardsReply shards;
  shards.set_job_id("neox");
  v1::ShardInfo& shard = *shards.add_shards();
  shard.set_layer_name("embed");
  shard.set_dtype("float32");
  shard.set_numel(2048);
  shard.set_bytes(8192);
  shard.set_checksum(0xfeed);
  EXPECT_THAT(ShardsText(shards, true), HasSubstr("000000000000feed\n"));
  EXPECT_THAT(ShardsText(shards, false),
              AllOf(HasSubstr("embed"), Not(HasSubstr("CHECKSUM")), Not(HasSubstr("feed\n"))));
  EXPECT_EQ(Json::parse(ShardsJson(shards, true))["shards"][0]["checksum"], "000000000000feed");
  EXPECT_FALSE(Json::parse(ShardsJson(shards, false))["shards"][0].contains("checksum"));
}

TEST(Layers, ShowTheirLeases) {
  v1::LayersReply layers;
  layers.set_job_id("neox");
  v1::LayerInfo& layer = *layers.add_layers();
  layer.set_name("block3");
  layer.set_leases(2);
  layer.set_gathered_bytes(12'582'912);
  EXPECT_THAT(LayersText(layers), AllOf(HasSubstr("job neox\n"), HasSubstr("12.0 MiB")));
  const Json json = Json::parse(LayersJson(layers));
  EXPECT_EQ(json["layers"][0]["leases"], 2);
  EXPECT_EQ(json["layers"][0]["gathered_bytes"], 12'582'912);
}

TEST(Memory, AddsUpItsClasses) {
  v1::MemoryReply memory;
  for (const char* name : {"parameters", "optimizer"}) {
    v1::MemoryClass& memory_class = *memory.add_classes();
    memory_class.set_name(name);
    memory_class.set_predicted_bytes(1024);
    memory_class.set_actual_bytes(1536);
  }
  memory.set_process_pss_bytes(-1);
  EXPECT_THAT(MemoryText(memory), AllOf(HasSubstr("total        2.00 KiB  3.00 KiB\n"),
                                        HasSubstr("set size: unknown\n")));
  EXPECT_EQ(Json::parse(MemoryJson(memory))["classes"][1]["actual_bytes"], 1536);
}

TEST(Sessions, SurviveStrangeProgramNames) {
  v1::SessionsReply sessions;
  EXPECT_EQ(SessionsText(sessions), "no worker is attached to this node\n");
  sessions.add_sessions()->set_program("evil\x1b[2J");
  EXPECT_THAT(SessionsText(sessions), HasSubstr("evil?[2J"));
  EXPECT_EQ(Json::parse(SessionsJson(sessions))["sessions"][0]["program"], "evil\x1b[2J");
}

TEST(Version, NamesBothPrograms) {
  v1::VersionReply daemon;
  daemon.set_version("0.1.0");
  daemon.set_protocol_version(1);
  daemon.set_backend("host");
  daemon.set_instruction_set("avx2");
  EXPECT_EQ(VersionText("0.2.0", daemon),
            "zeroctl 0.2.0\nzerod   0.1.0 (protocol 1, host backend, avx2)\n");
  EXPECT_EQ(Json::parse(VersionJson("0.2.0", daemon))["zeroctl"], "0.2.0");
}

}  // namespace
}  // namespace zerod::ctl
