#include "server/cluster/peer_messages.h"

#include <cmath>
#include <limits>
#include <utility>

#include "proto/contract/error.h"

namespace zerod {
namespace {

constexpr size_t kTextBytesMax = 1 << 16;
constexpr int kLayersMax = 4096;

template <typename... Args>
void Require(bool condition, const Args&... message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, Concat(message...));
}

std::string Text(const std::string& text, const char* what) {
  Require(text.size() <= kTextBytesMax, what, " has ", text.size(), " bytes, at most ",
          kTextBytesMax, " are possible");
  return text;
}

int CountFrom(int64_t number, int least, const char* what) {
  Require(least <= number && number <= std::numeric_limits<int>::max(), what, " is ", number);
  return static_cast<int>(number);
}

int64_t BytesFrom(int64_t bytes, const char* what) {
  Require(bytes >= 0, what, " is ", bytes);
  return bytes;
}

ErrorCode CodeFrom(uint32_t code) {
  Require(code <= static_cast<uint32_t>(ErrorCode::kInternal), "unknown error code ", code);
  return static_cast<ErrorCode>(code);
}

void Fill(const Proposal& proposal, v1::PeerMessage& message) {
  v1::Proposal& out = *message.mutable_proposal();
  out.set_job_id(proposal.job_id);
  out.set_mode(static_cast<uint32_t>(proposal.mode));
  out.set_exists(proposal.exists);
  out.set_plan_hash(proposal.plan_hash);
  out.set_step(proposal.step);
  out.set_epoch_seen(proposal.epoch_seen);
  out.set_window_bytes(proposal.window_bytes);
  out.set_cache_bytes(proposal.cache_bytes);
  out.set_gradient_slots(proposal.gradient_slots);
  out.set_tensor_parallel(proposal.tensor_parallel);
  out.set_withdrawn(proposal.withdrawn);
  out.set_reason(proposal.reason);
  out.set_number(proposal.number);
}

Proposal From(const v1::Proposal& message) {
  Require(1 <= message.mode() && message.mode() <= 3, "unknown attach mode ", message.mode());
  return {.number = message.number(),
          .job_id = Text(message.job_id(), "the job id"),
          .mode = static_cast<int>(message.mode()),
          .exists = message.exists(),
          .plan_hash = message.plan_hash(),
          .step = message.step(),
          .epoch_seen = message.epoch_seen(),
          .window_bytes = BytesFrom(message.window_bytes(), "the window"),
          .cache_bytes = BytesFrom(message.cache_bytes(), "the cache bound"),
          .gradient_slots = CountFrom(message.gradient_slots(), 0, "the number of gradient slots"),
          .tensor_parallel = CountFrom(message.tensor_parallel(), 1, "the tensor-parallel degree"),
          .withdrawn = message.withdrawn(),
          .reason = Text(message.reason(), "the reason")};
}

void Fill(const Decision& decision, v1::PeerMessage& message) {
  v1::Decision& out = *message.mutable_decision();
  out.set_job_id(decision.job_id);
  out.set_accepted(decision.accepted);
  out.set_created(decision.created);
  out.set_new_epoch(decision.new_epoch);
  out.set_code(static_cast<uint32_t>(decision.code));
  out.set_message(decision.message);
  out.mutable_numbers()->Assign(decision.numbers.begin(), decision.numbers.end());
}

Decision From(const v1::Decision& message) {
  return {.numbers = {message.numbers().begin(), message.numbers().end()},
          .job_id = Text(message.job_id(), "the job id"),
          .accepted = message.accepted(),
          .created = message.created(),
          .new_epoch = message.new_epoch(),
          .code = CodeFrom(message.code()),
          .message = Text(message.message(), "the decision's message")};
}

void Fill(const StoreEntry& entry, v1::PeerMessage& message) {
  message.mutable_store_entry()->set_key(entry.key);
  message.mutable_store_entry()->set_value(entry.value);
}

StoreEntry From(const v1::StoreEntry& message) {
  Require(!message.key().empty(), "a store entry has no key");
  return {.key = Text(message.key(), "the key of a store entry"), .value = message.value()};
}

void Fill(const Progress& progress, v1::PeerMessage& message) {
  v1::Progress& out = *message.mutable_progress();
  for (const auto& [fingerprint, rank] : progress.fingerprints) {
    v1::Fingerprint& item = *out.add_fingerprints();
    item.set_ticket(fingerprint.ticket);
    item.set_kind(static_cast<uint32_t>(fingerprint.kind));
    item.set_layer(fingerprint.layer);
    item.set_version(fingerprint.version);
    item.set_arguments_hash(fingerprint.arguments_hash);
    item.set_rank(rank);
    for (const Argument& argument : fingerprint.arguments) {
      v1::Argument& text = *item.add_arguments();
      text.set_what(argument.what);
      text.set_value(argument.value);
    }
  }
  out.mutable_last_tickets()->Add(progress.last_tickets.begin(), progress.last_tickets.end());
}

std::vector<Argument> ArgumentsFrom(const v1::Fingerprint& item) {
  std::vector<Argument> arguments;
  for (const v1::Argument& text : item.arguments()) {
    arguments.push_back({Text(text.what(), "an argument"), Text(text.value(), "an argument")});
  }
  return arguments;
}

Progress From(const v1::Progress& message) {
  Progress progress;
  for (const v1::Fingerprint& item : message.fingerprints()) {
    Require(1 <= item.kind() && item.kind() <= static_cast<uint32_t>(kOperationKindMax),
            "unknown operation kind ", item.kind(), " of ticket ", item.ticket());
    Require(-1 <= item.layer() && item.layer() < kLayersMax, "layer ", item.layer(), " of ticket ",
            item.ticket());
    progress.fingerprints.push_back(
        {.fingerprint = {.ticket = item.ticket(),
                         .kind = static_cast<OperationKind>(item.kind()),
                         .layer = item.layer(),
                         .version = item.version(),
                         .arguments_hash = item.arguments_hash(),
                         .arguments = ArgumentsFrom(item)},
         .rank = CountFrom(item.rank(), 0, "the rank of a fingerprint")});
  }
  progress.last_tickets.assign(message.last_tickets().begin(), message.last_tickets().end());
  return progress;
}

void Fill(const StepContribution& step, v1::PeerMessage& message) {
  v1::StepContribution& out = *message.mutable_step();
  out.set_ticket(step.ticket);
  out.mutable_sum_squares()->Add(step.sum_squares.begin(), step.sum_squares.end());
  out.mutable_values()->Add(step.values.begin(), step.values.end());
  for (const auto& [layer, tensors] : step.active) {
    out.add_active_layers(static_cast<uint32_t>(layer));
    std::string& bytes = *out.add_active_tensors();
    for (const bool active : tensors) bytes.push_back(active ? '\1' : '\0');
  }
}

StepContribution From(const v1::StepContribution& message) {
  StepContribution step{.ticket = message.ticket(), .sum_squares = {}, .values = {}, .active = {}};
  step.sum_squares.assign(message.sum_squares().begin(), message.sum_squares().end());
  step.values.assign(message.values().begin(), message.values().end());
  Require(!step.sum_squares.empty(), "the contribution to step ", message.ticket(),
          " has no sums of squares");
  Require(step.values.size() % step.sum_squares.size() == 0, "the contribution to step ",
          message.ticket(), " has ", step.values.size(), " values of ", step.sum_squares.size(),
          " ranks");
  Require(message.active_layers_size() == message.active_tensors_size(),
          "the contribution to step ", message.ticket(), " names ", message.active_layers_size(),
          " active layers and tensors of ", message.active_tensors_size());
  for (int i = 0; i < message.active_layers_size(); ++i) {
    Require(message.active_layers(i) < kLayersMax, "active layer ", message.active_layers(i));
    std::vector<bool> tensors;
    for (const char byte : message.active_tensors(i)) {
      Require(byte == '\0' || byte == '\1', "active tensor ", tensors.size(), " of layer ",
              message.active_layers(i), " is ", int{byte});
      tensors.push_back(byte == '\1');
    }
    step.active.emplace_back(static_cast<int>(message.active_layers(i)), std::move(tensors));
  }
  return step;
}

void Fill(const ScalarContribution& scalar, v1::PeerMessage& message) {
  v1::ScalarContribution& out = *message.mutable_scalar();
  out.set_ticket(scalar.ticket);
  out.mutable_values()->Add(scalar.values.begin(), scalar.values.end());
}

ScalarContribution From(const v1::ScalarContribution& message) {
  return {.ticket = message.ticket(), .values = {message.values().begin(), message.values().end()}};
}

void Fill(const AbortNotice& notice, v1::PeerMessage& message) {
  v1::AbortNotice& out = *message.mutable_abort();
  out.set_horizon_ticket(notice.horizon_ticket);
  out.set_code(static_cast<uint32_t>(notice.code));
  out.set_message(notice.message);
}

AbortNotice From(const v1::AbortNotice& message) {
  return {.horizon_ticket = message.horizon_ticket(),
          .code = CodeFrom(message.code()),
          .message = Text(message.message(), "the message of an abort")};
}

void Fill(const EndNotice& notice, v1::PeerMessage& message) {
  message.mutable_end()->set_drop(notice.drop);
}

EndNotice From(const v1::EndNotice& message) { return {.drop = message.drop()}; }

}  // namespace

v1::PeerMessage ToMessage(const PeerMessage& message) {
  v1::PeerMessage out;
  out.set_epoch(message.epoch);
  std::visit([&out](const auto& body) { Fill(body, out); }, message.body);
  return out;
}

PeerMessage FromMessage(const v1::PeerMessage& message) {
  PeerMessage out{.epoch = message.epoch(), .body = {}};
  switch (message.body_case()) {
    case v1::PeerMessage::kProposal:
      out.body = From(message.proposal());
      break;
    case v1::PeerMessage::kDecision:
      out.body = From(message.decision());
      break;
    case v1::PeerMessage::kStoreEntry:
      out.body = From(message.store_entry());
      break;
    case v1::PeerMessage::kProgress:
      out.body = From(message.progress());
      break;
    case v1::PeerMessage::kStep:
      out.body = From(message.step());
      break;
    case v1::PeerMessage::kScalar:
      out.body = From(message.scalar());
      break;
    case v1::PeerMessage::kAbort:
      out.body = From(message.abort());
      break;
    case v1::PeerMessage::kEnd:
      out.body = From(message.end());
      break;
    case v1::PeerMessage::kHello:
      throw Error(ErrorCode::kInvalidArgument, "a hello in the middle of the conversation");
    case v1::PeerMessage::BODY_NOT_SET:
      throw Error(ErrorCode::kInvalidArgument, "a message without a body that this version knows");
  }
  return out;
}

}  // namespace zerod
