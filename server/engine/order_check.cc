#include "server/engine/order_check.h"

#include <algorithm>

#include "proto/contract/error.h"

namespace zerod {
namespace {

/// Whether the ranks agree at a ticket. The texts only explain: a node may send none.
bool AreSame(const Fingerprint& one, const Fingerprint& other) {
  return one.kind == other.kind && one.layer == other.layer && one.version == other.version &&
         one.arguments_hash == other.arguments_hash;
}

/// How two operations differ that are called the same; empty if they aren't.
std::string Detail(const Fingerprint& one, const Fingerprint& other) {
  if (one.kind != other.kind || one.layer != other.layer) return "";
  if (one.version != other.version) {
    return Concat(" (versions ", one.version, " and ", other.version, ")");
  }
  const std::string difference = FirstDifference(one.arguments, other.arguments);
  return difference.empty() ? " (with other arguments)" : Concat(" (", difference, ")");
}

}  // namespace

OrderCheck::OrderCheck(int world, Describe describe)
    : describe_(std::move(describe)), last_tickets_(world) {}

std::optional<std::string> OrderCheck::Record(int rank, const Fingerprint& fingerprint,
                                              Clock::time_point now) {
  if (fingerprint.ticket <= compared_) return std::nullopt;
  const auto [found, added] =
      entries_.try_emplace(fingerprint.ticket, Entry{fingerprint, rank, now});
  const Entry& known = found->second;
  if (added || AreSame(known.fingerprint, fingerprint)) return std::nullopt;
  return Concat("the ranks diverge at operation ", fingerprint.ticket, ": rank ", known.rank,
                " submitted ", describe_(known.fingerprint), ", rank ", rank, " submitted ",
                describe_(fingerprint), Detail(known.fingerprint, fingerprint),
                "; all ranks must run the same layers in the same order");
}

void OrderCheck::Advance(int rank, uint64_t ticket) {
  last_tickets_[rank] = std::max(last_tickets_[rank], ticket);
  compared_ = *std::ranges::min_element(last_tickets_);
  entries_.erase(entries_.begin(), entries_.upper_bound(compared_));
}

void OrderCheck::Excuse(Clock::duration pause) {
  for (auto& [ticket, entry] : entries_) entry.seen += pause;
}

std::optional<OrderCheck::Late> OrderCheck::FindLate(Clock::time_point now) const {
  if (entries_.empty()) return std::nullopt;
  const auto& [ticket, entry] = *entries_.begin();
  Late late{{}, entry.rank, ticket, describe_(entry.fingerprint), now - entry.seen};
  for (size_t rank = 0; rank < last_tickets_.size(); ++rank) {
    if (last_tickets_[rank] < ticket) late.ranks.push_back(static_cast<int>(rank));
  }
  return late;
}

}  // namespace zerod
