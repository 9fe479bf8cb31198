// BMv2's egress queues with a clock that stands still, driven by lines on standard input: see
// tests/support/queues.py. Compile with the folder of BMv2's queueing.h on the include path.

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace std::chrono {

struct set_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<set_clock>;
  static constexpr bool is_steady = true;
  static inline int64_t now_ns = 0;
  static time_point now() { return time_point(duration(now_ns)); }
};

}  // namespace std::chrono

#define high_resolution_clock set_clock
#define private public  // the heads of the queues say when pop_back would not wait
#include "queueing.h"

struct Workers {
  size_t operator()(size_t port) const { return port % 4; }
};
using Queues = bm::QueueingLogicPriRL<int, Workers>;

std::string leave_until(Queues *queues, int64_t end) {
  auto &now = std::chrono::set_clock::now_ns;
  std::map<size_t, std::string> left;
  while (true) {
    int64_t next = INT64_MAX;
    size_t worker = 0;
    for (size_t each = 0; each < 4; each++) {
      for (auto &queue : queues->workers_info[each].queues) {
        if (queue.empty()) continue;
        int64_t send = queue.top().send.time_since_epoch().count();
        if (send < next) next = send, worker = each;
      }
    }
    if (next > end) break;
    now = std::max(now, next);
    size_t port, priority;
    int packet;
    queues->pop_back(worker, &port, &priority, &packet);
    left[port] += (left[port].empty() ? "" : " ") + std::to_string(port) + ":" +
                  std::to_string(packet) + ":" + std::to_string(now);
  }
  now = end;
  std::string all;
  for (auto &[port, text] : left) all += (all.empty() ? "" : " ") + text;
  return all;
}

int main() {
  std::unique_ptr<Queues> queues;
  std::string name;
  int packets = 0;
  while (std::cin >> name) {
    int64_t value = 0, port, priority;
    std::cin >> value;
    std::string answer;
    if (name == "new") {
      std::chrono::set_clock::now_ns = packets = 0;
      queues = std::make_unique<Queues>(4, 64, Workers(), value);
    } else if (name == "push") {
      std::cin >> priority;
      size_t depth = queues->size(value, priority);
      int taken = queues->push_front(value, priority, packets++);
      answer = std::to_string(taken) + " " + std::to_string(depth);
    } else if (name == "until") {
      answer = leave_until(queues.get(), value);
    } else {
      std::cin >> port >> priority;
      if (name == "depth") {
        if (port < 0) queues->set_capacity_for_all(value);
        else if (priority < 0) queues->set_capacity(port, value);
        else queues->set_capacity(port, priority, value);
      } else {
        if (port < 0) queues->set_rate_for_all(value);
        else if (priority < 0) queues->set_rate(port, value);
        else queues->set_rate(port, priority, value);
      }
    }
    std::cout << answer << "\n";
  }
}
