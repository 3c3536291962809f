// Queries to several segments.
#include "segments.hpp"

#include <algorithm>
#include <tuple>

namespace draftline {
namespace {

constexpr size_t kFew = 256;  // occurrences in a segment that are all examined

}  // namespace

// Matches shorter than those of an earlier part are not searched for.
std::vector<Found> Segments::find(Tokens tail, int64_t limit, size_t least, size_t& length) const {
  std::vector<Found> found(parts_.size());
  length = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    found[part] = parts_[part]->find_living(tail, limit, std::max(least, length));
    length = std::max<size_t>(length, found[part].length);
  }
  return found;
}

// The parts with a match of this length, in the order of their newest documents.
std::vector<size_t> Segments::newest_first(const std::vector<Found>& found, size_t length) const {
  std::vector<size_t> order;
  for (size_t part = 0; part < parts_.size(); ++part)
    if (found[part].length == length) order.push_back(part);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parts_[a]->last_change() > parts_[b]->last_change();
  });
  return order;
}

// The age of the oldest of a part's newest occurrences, if there are enough of them: none in parts
// that are older is among the `most` newest ones of all.
int64_t Segments::oldest_change(size_t part, const std::vector<uint32_t>& positions,
                                size_t most) const {
  if (positions.empty() || positions.size() < most) return INT64_MIN;
  const Documents& documents = *parts_[part];
  return documents.label(documents.document_at(positions.back())).changed;
}

void Segments::add_hits(size_t part, const std::vector<uint32_t>& positions,
                        std::vector<Hit>& hits) const {
  const Documents& documents = *parts_[part];
  size_t doc = SIZE_MAX;
  for (uint32_t position : positions) {
    doc = documents.document_at(position, doc);
    hits.push_back({static_cast<uint32_t>(part), static_cast<uint32_t>(doc), position,
                    documents.label(doc).changed, 0});
  }
}

// Too many occurrences to examine all: adds the newest ones in the near documents.
void Segments::add_near(size_t part, Tokens needle, size_t k, int32_t path, int32_t folder,
                        std::vector<Hit>& hits) const {
  const Documents& documents = *parts_[part];
  std::vector<uint32_t> positions;
  size_t in_folder = 0;
  for (size_t doc = documents.documents(); doc-- > 0;) {
    const Label& label = documents.label(doc);
    const bool here = label.path == path && path >= 0;
    const bool beside = label.folder == folder && folder >= 0 && in_folder < k;
    if (!documents.alive(doc) || !(here || beside)) continue;
    positions.clear();
    documents.scan(doc, needle, true, here ? k : k - in_folder, positions);
    in_folder += positions.size();
    add_hits(part, positions, hits);
  }
}

void Segments::keep_newest(std::vector<Hit>& hits, size_t most) const {
  for (Hit& hit : hits) {
    hit.doc = static_cast<uint32_t>(parts_[hit.part]->document_at(hit.position));
    hit.changed = parts_[hit.part]->label(hit.doc).changed;
  }
  const auto newer = [](const Hit& a, const Hit& b) {
    return std::tie(a.changed, a.part, a.position) > std::tie(b.changed, b.part, b.position);
  };
  std::nth_element(hits.begin(), hits.begin() + most, hits.end(), newer);
  hits.resize(most);
}

const int32_t* Segments::following(const Hit& hit) const {
  return parts_[hit.part]->run().data() + hit.position + 1;
}

Places Segments::match(Tokens tail, int64_t k, int64_t limit, int32_t path, int32_t folder) const {
  require_not_negative("k", k);
  const auto most = static_cast<size_t>(k);
  size_t length;
  const std::vector<Found> found = find(tail, limit, 1, length);
  if (length == 0) return {};
  const Tokens needle = tail.last(length);
  const bool near = path >= 0 || folder >= 0;
  Places places{static_cast<int64_t>(length), 0, {}};
  std::vector<Hit> hits;
  std::vector<uint32_t> positions;
  const size_t wanted = std::max(kSample, most);
  int64_t oldest = INT64_MIN;
  for (size_t part : newest_first(found, length)) {
    const bool too_old = parts_[part]->last_change() < oldest;
    const size_t count = parts_[part]->newest(found[part], too_old ? 0 : wanted, positions);
    oldest = std::max(oldest, oldest_change(part, positions, wanted));
    if (near && count > positions.size() && count <= kFew)
      parts_[part]->newest(found[part], count, positions);
    places.count += static_cast<int64_t>(count);
    add_hits(part, positions, hits);
    if (near && count > positions.size()) add_near(part, needle, most, path, folder, hits);
  }

  const auto newer = [](const Hit& a, const Hit& b) {
    return std::tie(a.changed, a.part, a.position) > std::tie(b.changed, b.part, b.position);
  };
  if (!std::is_sorted(hits.begin(), hits.end(), newer)) std::sort(hits.begin(), hits.end(), newer);
  const auto same = [](const Hit& a, const Hit& b) {
    return a.part == b.part && a.position == b.position;
  };
  hits.erase(std::unique(hits.begin(), hits.end(), same), hits.end());
  std::vector<int32_t> sample;  // tokens that follow the newest occurrences
  for (const Hit& hit : hits) {
    if (sample.size() == kSample) break;
    sample.push_back(*following(hit));
  }
  if (near) {
    for (Hit& hit : hits) {
      const Label& label = parts_[hit.part]->label(hit.doc);
      hit.nearness = path >= 0 && label.path == path         ? 2
                     : folder >= 0 && label.folder == folder ? 1
                                                             : 0;
    }
    std::stable_sort(hits.begin(), hits.end(),
                     [](const Hit& a, const Hit& b) { return a.nearness > b.nearness; });
  }
  hits.resize(std::min(hits.size(), most));
  for (const Hit& hit : hits) {
    const auto same_token = std::count(sample.begin(), sample.end(), *following(hit));
    places.best.push_back({static_cast<int32_t>(hit.part), static_cast<int32_t>(hit.doc),
                           static_cast<int32_t>(hit.position - parts_[hit.part]->starts()[hit.doc]),
                           double(same_token) / double(sample.size())});
  }
  return places;
}

Tree Segments::tree(Tokens tail, int64_t nodes, int64_t width, int64_t limit, int64_t most,
                    int64_t least) const {
  require_not_negative("most", most);
  require_not_negative("least", least);
  size_t length;
  const std::vector<Found> found = find(tail, limit, static_cast<size_t>(least), length);
  std::vector<Hit> hits;
  std::vector<uint32_t> positions;
  int64_t oldest = INT64_MIN;
  const auto parts = length > 0 ? newest_first(found, length) : std::vector<size_t>{};
  for (size_t part : parts) {
    if (parts_[part]->last_change() < oldest) break;
    parts_[part]->newest(found[part], static_cast<size_t>(most), positions);
    oldest = std::max(oldest, oldest_change(part, positions, static_cast<size_t>(most)));
    for (uint32_t position : positions)
      hits.push_back({static_cast<uint32_t>(part), 0, position, 0, 0});
  }
  if (hits.size() > static_cast<size_t>(most)) keep_newest(hits, static_cast<size_t>(most));
  std::vector<const int32_t*> places;
  places.reserve(hits.size());
  for (const Hit& hit : hits) {
    places.push_back(following(hit));
    __builtin_prefetch(places.back());
  }
  return grow_tree(static_cast<int64_t>(length), std::move(places), nodes, width);
}

}  // namespace draftline
