#!/usr/bin/env python3
"""DCQCN's queue in the long run, in ways that share no code with the simulator.

The formula and the equations are those of "ECN or Delay" (CoNEXT 2016), section 3; `events` follows
each packet, mark and CNP of the algorithm of the DCQCN paper, without any transport. Parameters are
the paper's, on 40 Gbit/s, with marks that rise by 1 % in 195 KB from 5 KB on.
"""
import heapq
import math
import random

RATE, FRAME, ON_LINK = 40e9, 1082, 1106  # bit/s; bytes in a queue, on a link
TAU, PERIOD, BYTES, STAGES, GAIN = 50e-6, 55e-6, 10e6, 5, 1 / 256
KMIN, SLOPE = 5e3, 0.01 / 195e3
PACKETS = RATE / 8 / ON_LINK  # per second


def queue(p):
    return KMIN + p / SLOPE


def formula(flows, ai):
    """The paper's approximation for small probabilities."""
    per_event = FRAME / BYTES + flows / (PERIOD * PACKETS)
    rise = ai / 8 / ON_LINK * flows**2 / (PERIOD * PACKETS**2)
    return queue((rise * per_event**2) ** (1 / 3))


def equations(flows, ai):
    """The probability at which nothing changes, by bisection."""
    rate, counter = PACKETS / flows, BYTES / FRAME

    def excess(p):
        log = math.log1p(-p)
        by_bytes = p / math.expm1(-counter * log)
        by_time = p / math.expm1(-PERIOD * rate * log)
        cuts = -math.expm1(TAU * rate * log) / TAU
        alpha = -math.expm1(PERIOD * rate * log)
        gap = alpha * cuts / (by_bytes + by_time)
        late = [STAGES * counter, STAGES * PERIOD * rate]
        additive = math.exp(late[0] * log) * by_bytes + math.exp(late[1] * log) * by_time
        return gap * cuts - ai / 8 / ON_LINK * rate * additive

    low, high = 1e-6, 0.5
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    return queue(low)


class Flow:
    def __init__(self, rate):
        self.rate, self.target, self.alpha = rate, rate, 0.15
        self.cut_at, self.timer, self.cnp_at = 0.0, PERIOD, -1.0
        self.times = self.counts = self.sent = 0

    def increase(self, ai):
        first, last = sorted((self.times, self.counts))
        if first > STAGES:
            self.target += (first - STAGES) * 200e6
        elif last >= STAGES:
            self.target += ai
        self.target = min(self.target, RATE)
        self.rate = (self.rate + self.target) / 2

    def pass_time(self, now, ai):
        while self.timer <= now:
            self.timer += PERIOD
            self.times += 1
            self.increase(ai)

    def cut(self, now):
        self.alpha *= (1 - GAIN) ** int((now - self.cut_at) / PERIOD)
        self.target, self.rate = self.rate, self.rate * (1 - self.alpha / 2)
        self.alpha += (1 - self.alpha) * GAIN
        self.cut_at, self.timer = now, now + PERIOD
        self.times = self.counts = self.sent = 0


def events(flows, ai, until=0.15, warmup=0.07, seed=1):
    """The mean queue, packet by packet."""
    chance = random.Random(seed)
    all_flows = [Flow(RATE / flows * (0.8 + 0.4 * n / flows)) for n in range(flows)]
    todo = [(chance.random() * 1e-6, "send", n) for n in range(flows)]
    heapq.heapify(todo)
    length = area = 0.0
    before = now = 0.0
    while now < until:
        now, what, number = heapq.heappop(todo)
        flow = all_flows[number]
        if what == "marked" and (flow.cnp_at < 0 or now - flow.cnp_at >= TAU):
            flow.cnp_at = now
            heapq.heappush(todo, (now + 3e-6, "cnp", number))
        if what == "cnp":
            flow.pass_time(now, ai)
            flow.cut(now)
        if what == "send":
            flow.pass_time(now, ai)
            drained = (now - before) * RATE / 8 * FRAME / ON_LINK
            if now > warmup:
                area += (now - before) * max(length - drained / 2, 0)
            length, before = max(0, length - drained), now
            if chance.random() < (length - KMIN) * SLOPE:
                heapq.heappush(todo, (now + length * 8 / RATE + 1e-6, "marked", number))
            length += FRAME
            flow.sent += FRAME
            if flow.sent >= BYTES:
                flow.sent -= BYTES
                flow.counts += 1
                flow.increase(ai)
            heapq.heappush(todo, (now + ON_LINK * 8 / flow.rate, "send", number))
    return area / (until - warmup)


def delayed(flows, ai, delay=85e-6, until=0.2, step=1e-6):
    """The equations over time with feedback that comes late, marks all packets from 200 KB on, and
    windows of 256 packets: mean queue, and the share of the link that is used."""
    rate, target, alpha, length = PACKETS * 0.9, PACKETS, 1.0, 0.0
    seen, queues, used = [], [], []
    for n in range(int(until / step)):
        p = (length - KMIN) * SLOPE if length > KMIN else 0.0
        seen.append((p if length < 200e3 else 1.0, rate))
        p, then = seen[max(0, n - int(delay / step))]
        log = math.log1p(-min(p, 1 - 1e-9))

        def runs(packets):
            run = -packets * log
            return 1 / packets if run < 1e-9 else p / math.expm1(run) if run < 600 else 0.0

        counter, timer = BYTES / FRAME, PERIOD * then
        by_bytes, by_time = runs(counter), runs(timer)
        cuts = -math.expm1(TAU * then * log) / TAU
        alpha += step * GAIN / PERIOD * (-math.expm1(PERIOD * then * log) - alpha)
        late = [math.exp(STAGES * packets * log) for packets in (counter, timer)]
        additive = ai / 8 / ON_LINK * then * (late[0] * by_bytes + late[1] * by_time)
        gap = target - rate
        target = min(PACKETS, target + step * (additive - gap * cuts))
        change = gap / 2 * then * (by_bytes + by_time) - rate * alpha / 2 * cuts
        rate = min(PACKETS, max(rate + step * change, 100.0))
        length += step * (rate * flows - PACKETS) * FRAME
        length = min(max(length, 0.0), flows * 256 * FRAME)
        queues.append(length)
        used.append(1.0 if length > 0 else min(1.0, rate * flows / PACKETS))
    half = len(queues) // 2
    return sum(queues[half:]) / half, sum(used[half:]) / half


if __name__ == "__main__":
    print("rpg_ai_rate  flows  formula  equations  events (KB)")
    for ai in (10, 40):
        for flows in (2, 4, 8, 10, 16):
            ways = [way(flows, ai * 1e6) / 1e3 for way in (formula, equations, events)]
            print(f"{ai:11}  {flows:5}  {ways[0]:7.1f}  {ways[1]:9.1f}  {ways[2]:6.1f}")
    print("late by 85 us, with the step at Kmax: flows, queue (KB), share of the link")
    for flows in (2, 10):
        length, share = delayed(flows, 40e6)
        print(f"{flows:5}  {length / 1e3:.0f}  {share:.3f}")
