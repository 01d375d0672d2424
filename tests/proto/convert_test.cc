#include "proto/contract/convert.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace zerod {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Body>
void ExpectRefused(Body body, const std::string& where) {
  try {
    body();
    ADD_FAILURE() << "accepted: " << where;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << where;
  }
}

LayerSpec Linear() {
  return {.name = "block0",
          .tensors = {{.name = "weight", .shape = {32, 16}, .dtype = DType::kBFloat16},
                      {.name = "bias", .shape = {32}, .trainable = false, .lr_scale = 0.25f},
                      {.name = "scale", .shape = {}, .decay = false}},
          .reduce_dtype = DType::kFloat16,
          .master_dtype = DType::kBFloat16};
}

/// What arrives after the bytes have been on the wire.
template <typename Message, typename Value>
Message Wired(const Value& value) {
  Message sent, received;
  ToMessage(value, sent);
  EXPECT_TRUE(received.ParseFromString(sent.SerializeAsString()));
  return received;
}

TEST(Convert, ALayerComesBackAsItself) {
  EXPECT_EQ(FromMessage(Wired<v1::LayerSpec>(Linear())), Linear());
}

TEST(Convert, ALayerWithoutTensorsComesBackAsItself) {
  const LayerSpec empty{.name = "activation", .tensors = {}};
  EXPECT_EQ(FromMessage(Wired<v1::LayerSpec>(empty)), empty);
}

TEST(Convert, HostileLayersAreRefused) {
  using Spec = v1::LayerSpec;
  const std::vector<std::function<void(Spec&)>> attacks = {
      [](Spec& m) { m.clear_name(); },
      [](Spec& m) { m.set_name(std::string(513, 'n')); },
      [](Spec& m) { m.set_reduce_dtype(0); },
      [](Spec& m) { m.set_master_dtype(4); },
      [](Spec& m) { m.mutable_tensors(0)->clear_name(); },
      [](Spec& m) { m.mutable_tensors(0)->set_name(std::string(513, 'n')); },
      [](Spec& m) { m.mutable_tensors(0)->set_dtype(0); },
      [](Spec& m) { m.mutable_tensors(0)->set_dtype(0x1'0001); },
      [](Spec& m) { m.mutable_tensors(0)->set_shape(0, -1); },
      [](Spec& m) { m.mutable_tensors(0)->set_shape(0, 0); },
      [](Spec& m) { m.mutable_tensors(0)->set_shape(0, std::numeric_limits<int64_t>::min()); },
      [](Spec& m) { m.mutable_tensors(0)->set_shape(0, std::numeric_limits<int64_t>::max()); },
      [](Spec& m) {
        for (int i = 0; i < 2; ++i) m.mutable_tensors(0)->set_shape(i, int64_t{1} << 32);
      },
      [](Spec& m) {
        for (int i = 0; i < 7; ++i) m.mutable_tensors(0)->add_shape(1);
      },
      [](Spec& m) { m.mutable_tensors(0)->set_lr_scale(-1.0f); },
      [](Spec& m) { m.mutable_tensors(0)->set_lr_scale(static_cast<float>(kNan)); },
      [](Spec& m) {
        while (m.tensors_size() <= 4096) *m.add_tensors() = m.tensors(2);
      },
      [](Spec& m) {
        m.mutable_tensors(0)->set_shape(0, int64_t{1} << 41);
        for (int i = 0; i < 4; ++i) *m.add_tensors() = m.tensors(0);
      },
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    Spec message = Wired<Spec>(Linear());
    attacks[i](message);
    ExpectRefused([&] { FromMessage(message); }, Concat("attack ", i));
  }
}

TEST(Convert, TheLargestLayerIsAccepted) {
  v1::LayerSpec message = Wired<v1::LayerSpec>(Linear());
  message.set_name(std::string(512, 'n'));
  while (message.tensors_size() < 4096) *message.add_tensors() = message.tensors(2);
  for (int i = 0; i < 6; ++i) message.mutable_tensors(0)->add_shape(1);
  EXPECT_EQ(FromMessage(message).tensors.size(), 4096u);
  EXPECT_EQ(FromMessage(message).tensors[0].shape.size(), 8u);
}

Operation Of(OperationKind kind) {
  Operation operation;
  operation.ticket = 77;
  operation.kind = kind;
  operation.layer = 5;
  operation.version = 1'000'000'000'000;
  switch (kind) {
    case OperationKind::kRegister:
      operation.layer_spec = Linear();
      break;
    case OperationKind::kReduce:
      operation.slot = 1;
      operation.has_gradient = {true, false, true};
      break;
    case OperationKind::kStep:
      operation.step = {OptimizerKind::kSgd, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7};
      operation.values = {1.25, kNan};
      operation.private_state = std::string("\0\xff state", 8);
      break;
    case OperationKind::kScalar:
      operation.values.assign(kValuesMax, -3.5);
      break;
    case OperationKind::kRead:
    case OperationKind::kWrite:
      operation.content = Content::kExpAvgSq;
      operation.source_rank = 3;
      operation.wants_data = true;
      break;
    case OperationKind::kImport:
      operation.import_from = {{"/models/a.safetensors", int64_t{1} << 40, DType::kBFloat16},
                               {std::string("/models/\xff\xfe", 10), 0, DType::kFloat16}};
      break;
    default:
      break;
  }
  return operation;
}

TEST(Convert, EveryKindOfOperationComesBackAsItself) {
  for (int kind = 1; kind <= 10; ++kind) {
    const Operation sent = Of(static_cast<OperationKind>(kind));
    const Operation back = FromMessage(Wired<v1::Operation>(sent));
    SCOPED_TRACE(OperationKindName(sent.kind));
    EXPECT_EQ(back.ticket, sent.ticket);
    EXPECT_EQ(back.kind, sent.kind);
    EXPECT_EQ(back.layer, sent.layer);
    EXPECT_EQ(back.version, sent.version);
    EXPECT_EQ(back.slot, sent.slot);
    EXPECT_EQ(back.has_gradient, sent.has_gradient);
    EXPECT_EQ(back.step, sent.step);
    ASSERT_EQ(back.values.size(), sent.values.size());
    for (size_t i = 0; i < sent.values.size(); ++i) {
      EXPECT_TRUE(back.values[i] == sent.values[i] || std::isnan(sent.values[i]));
    }
    EXPECT_EQ(back.content, sent.content);
    EXPECT_EQ(back.source_rank, sent.source_rank);
    EXPECT_EQ(back.wants_data, sent.wants_data);
    EXPECT_EQ(back.layer_spec, sent.layer_spec);
    EXPECT_EQ(back.private_state, sent.private_state);
    EXPECT_EQ(back.import_from, sent.import_from);
    EXPECT_EQ(FingerprintOf(back), FingerprintOf(sent));
  }
}

TEST(Convert, HostileOperationsAreRefused) {
  using Message = v1::Operation;
  using Kind = OperationKind;
  const std::vector<std::pair<Kind, std::function<void(Message&)>>> attacks = {
      {Kind::kGather, [](Message& m) { m.set_ticket(0); }},
      {Kind::kGather, [](Message& m) { m.set_kind(0); }},
      {Kind::kGather, [](Message& m) { m.set_kind(11); }},
      {Kind::kGather, [](Message& m) { m.set_kind(0x103); }},
      {Kind::kGather, [](Message& m) { m.set_layer(-1); }},
      {Kind::kRelease, [](Message& m) { m.set_layer(-1); }},
      {Kind::kSeal, [](Message& m) { m.set_layer(-2); }},
      {Kind::kScalar, [](Message& m) { m.set_layer(std::numeric_limits<int32_t>::min()); }},
      {Kind::kReduce, [](Message& m) { m.set_slot(-1); }},
      {Kind::kReduce,
       [](Message& m) {
         while (m.has_gradient_size() <= 4096) m.add_has_gradient(true);
       }},
      {Kind::kScalar, [](Message& m) { m.add_values(1.0); }},
      {Kind::kRegister, [](Message& m) { m.clear_layer_spec(); }},
      {Kind::kRead, [](Message& m) { m.set_content(0); }},
      {Kind::kRead, [](Message& m) { m.set_content(6); }},
      {Kind::kWrite, [](Message& m) { m.set_source_rank(-1); }},
      {Kind::kImport, [](Message& m) { m.set_layer(-1); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(0)->set_path("model"); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(0)->clear_path(); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(0)->mutable_path()->push_back(0); }},
      {Kind::kImport,
       [](Message& m) { m.mutable_import_from(0)->mutable_path()->append(4096, 'x'); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(1)->set_offset_bytes(-1); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(1)->set_dtype(0); }},
      {Kind::kImport, [](Message& m) { m.mutable_import_from(1)->set_dtype(4); }},
      {Kind::kImport,
       [](Message& m) {
         while (m.import_from_size() <= 4096) *m.add_import_from() = m.import_from(0);
       }},
      {Kind::kStep, [](Message& m) { m.clear_step(); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_optimizer(3); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_learning_rate(kNan); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_beta1(1.0); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_beta2(-0.1); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_eps(-1e-8); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_weight_decay(kNan); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_max_grad_norm(-1.0); }},
      {Kind::kStep, [](Message& m) { m.mutable_step()->set_gradient_divisor(0.0); }},
      {Kind::kStep, [](Message& m) { m.mutable_private_state()->assign((16 << 20) + 1, 'x'); }},
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    Message message = Wired<Message>(Of(attacks[i].first));
    attacks[i].second(message);
    ExpectRefused([&] { FromMessage(message); }, Concat("attack ", i));
  }
}

/// Two chunks for the three tensors of Linear: the bfloat16 weight and the trainable float32 scale
/// have a slot, the frozen bias has none.
LayerPlan PlanOfLinear() {
  return {.spec = Linear(),
          .chunks = {{DType::kBFloat16, true, 4096, 2048, 0, 0},
                     {DType::kFloat32, false, 2048, 1024, -1, 16384},
                     {DType::kFloat32, true, 2048, 1024, 8192, 24576}},
          .tensors = {{0, 0, 512}, {1, 0, 32}, {2, 64, 1}},
          .slot_bytes = 12288,
          .stage_bytes = 32768,
          .gathered_bytes = 24576};
}

TEST(Convert, APlanComesBackAsItself) {
  const LayerPlan sent = PlanOfLinear();
  const LayerPlan back = FromMessage(Wired<v1::LayerPlan>(sent), sent.spec);
  EXPECT_EQ(back.spec, sent.spec);
  EXPECT_EQ(back.slot_bytes, sent.slot_bytes);
  EXPECT_EQ(back.stage_bytes, sent.stage_bytes);
  EXPECT_EQ(back.gathered_bytes, sent.gathered_bytes);
  ASSERT_EQ(back.chunks.size(), sent.chunks.size());
  for (size_t i = 0; i < sent.chunks.size(); ++i) {
    EXPECT_EQ(back.chunks[i].dtype, sent.chunks[i].dtype);
    EXPECT_EQ(back.chunks[i].trainable, sent.chunks[i].trainable);
    EXPECT_EQ(back.chunks[i].padded_numel, sent.chunks[i].padded_numel);
    EXPECT_EQ(back.chunks[i].shard_numel, sent.chunks[i].shard_numel);
    EXPECT_EQ(back.chunks[i].slot_offset_bytes, sent.chunks[i].slot_offset_bytes);
    EXPECT_EQ(back.chunks[i].stage_offset_bytes, sent.chunks[i].stage_offset_bytes);
  }
  ASSERT_EQ(back.tensors.size(), sent.tensors.size());
  for (size_t i = 0; i < sent.tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].chunk, sent.tensors[i].chunk);
    EXPECT_EQ(back.tensors[i].offset_numel, sent.tensors[i].offset_numel);
    EXPECT_EQ(back.tensors[i].numel, sent.tensors[i].numel);
  }
}

TEST(Convert, PlansThatDoNotFitTheirLayerAreRefused) {
  using Plan = v1::LayerPlan;
  const std::vector<std::function<void(Plan&)>> attacks = {
      [](Plan& m) { m.set_slot_bytes(-1); },
      [](Plan& m) { m.set_stage_bytes(-1); },
      [](Plan& m) { m.set_gathered_bytes(-1); },
      [](Plan& m) { m.mutable_tensors()->RemoveLast(); },
      [](Plan& m) { m.mutable_tensors(0)->set_chunk(3); },
      [](Plan& m) { m.mutable_tensors(0)->set_chunk(-1); },
      [](Plan& m) { m.mutable_tensors(0)->set_chunk(2); },
      [](Plan& m) { m.mutable_tensors(0)->set_numel(511); },
      [](Plan& m) { m.mutable_tensors(0)->set_offset_numel(-1); },
      [](Plan& m) { m.mutable_tensors(0)->set_offset_numel(4096 - 511); },
      [](Plan& m) { m.mutable_chunks(0)->set_padded_numel(0); },
      [](Plan& m) { m.mutable_chunks(0)->set_padded_numel(int64_t{1} << 62); },
      [](Plan& m) { m.mutable_chunks(0)->set_shard_numel(0); },
      [](Plan& m) { m.mutable_chunks(0)->set_shard_numel(3); },
      [](Plan& m) { m.mutable_chunks(0)->set_dtype(9); },
      [](Plan& m) { m.mutable_chunks(0)->set_trainable(false); },
      [](Plan& m) { m.mutable_chunks(0)->set_slot_offset_bytes(-1); },
      [](Plan& m) { m.mutable_chunks(2)->set_slot_offset_bytes(8193); },
      [](Plan& m) { m.mutable_chunks(1)->set_slot_offset_bytes(0); },
      [](Plan& m) { m.mutable_chunks(0)->set_stage_offset_bytes(-64); },
      [](Plan& m) { m.mutable_chunks(2)->set_stage_offset_bytes(24577); },
      [](Plan& m) { *m.add_chunks() = m.chunks(2); },
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    Plan message = Wired<Plan>(PlanOfLinear());
    attacks[i](message);
    ExpectRefused([&] { FromMessage(message, Linear()); }, Concat("attack ", i));
  }
}

TEST(Convert, AFaultComesBackAsTheErrorItWas) {
  const Error sent(ErrorCode::kAborted, "rank 3 is gone");
  const Error back = FromMessage(Wired<v1::Fault>(sent));
  EXPECT_EQ(back.code(), ErrorCode::kAborted);
  EXPECT_STREQ(back.what(), "rank 3 is gone");
}

TEST(Convert, AFaultOfAnUnknownCodeKeepsItsMessage) {
  v1::Fault message;
  message.set_code(1000);
  message.set_message("from the future");
  EXPECT_EQ(FromMessage(message).code(), ErrorCode::kInternal);
  EXPECT_STREQ(FromMessage(message).what(), "from the future");
}

}  // namespace
}  // namespace zerod
