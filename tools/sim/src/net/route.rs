//! Ways through the network: shortest ones, and among equally short ones that which a hash of the
//! packet's addresses and ports says.

use std::collections::VecDeque;

use super::port::Port;
use crate::plan::{Node, Topology};

/// For each switch and each switch that hosts are at: the ports that are next on a shortest way.
#[derive(Debug)]
pub struct Routes {
    /// Of each host: the switch it is at, if any, and that switch's port to it.
    home: Vec<Option<(u32, u32)>>,
    /// Number of each switch among those that hosts are at.
    edge: Vec<u32>,
    edges: usize,
    /// Where in `ports` the next ports of each pair stand: `switch * edges + edge`.
    spans: Vec<(u32, u32)>,
    ports: Vec<u32>,
    /// Of each switch, so that not all of them decide alike.
    seeds: Vec<u64>,
}

impl Routes {
    /// The ways through `topology`.
    pub fn new(topology: &Topology, ports: &[Port], seed: u64) -> Routes {
        let mut home = vec![None; topology.hosts];
        let mut of_switch: Vec<Vec<u32>> = vec![Vec::new(); topology.switches];
        let mut edge = vec![u32::MAX; topology.switches];
        let mut edges = 0;
        for (number, port) in ports.iter().enumerate() {
            let Node::Switch(switch) = port.node else { continue };
            match ports[number ^ 1].node {
                Node::Switch(_) => of_switch[switch].push(number as u32),
                Node::Host(host) => {
                    home[host] = Some((switch as u32, number as u32));
                    if edge[switch] == u32::MAX {
                        edge[switch] = edges as u32;
                        edges += 1;
                    }
                }
            }
        }
        let mut rng = ferroce::rand::Rng::new(seed);
        let seeds = (0..topology.switches).map(|_| rng.next_u64()).collect();
        let spans = vec![(0, 0); topology.switches * edges];
        let mut routes = Routes { home, edge, edges, spans, ports: Vec::new(), seeds };
        let mut last = vec![(0, 0); topology.switches];
        for goal in 0..topology.switches {
            if routes.edge[goal] != u32::MAX {
                routes.find_ways_to(goal, &of_switch, ports, &mut last);
            }
        }
        routes
    }

    /// Distances from `goal` outwards; next is whatever is one nearer. `last` has each switch's
    /// span to the goal before.
    fn find_ways_to(
        &mut self,
        goal: usize,
        of_switch: &[Vec<u32>],
        ports: &[Port],
        last: &mut [(u32, u32)],
    ) {
        let neighbour = |port: u32| match ports[port as usize ^ 1].node {
            Node::Switch(switch) => switch,
            Node::Host(_) => goal,
        };
        let mut distance = vec![u32::MAX; of_switch.len()];
        distance[goal] = 0;
        let mut reached = VecDeque::from([goal]);
        while let Some(switch) = reached.pop_front() {
            for next in of_switch[switch].iter().map(|&port| neighbour(port)) {
                if distance[next] == u32::MAX {
                    distance[next] = distance[switch] + 1;
                    reached.push_back(next);
                }
            }
        }
        for (switch, own) in of_switch.iter().enumerate() {
            if distance[switch] == u32::MAX || switch == goal {
                continue;
            }
            let start = self.ports.len();
            let is_nearer = |&&port: &&u32| distance[neighbour(port)] < distance[switch];
            self.ports.extend(own.iter().filter(is_nearer));
            let span = (start as u32, (self.ports.len() - start) as u32);
            // The ways up are the same to most goals: they are kept once.
            let (before, count) = last[switch];
            if self.ports[before as usize..][..count as usize] == self.ports[start..] {
                self.ports.truncate(start);
            } else {
                last[switch] = span;
            }
            self.spans[switch * self.edges + self.edge[goal] as usize] = last[switch];
        }
    }

    /// The port by which `switch` sends on to host `to` what hashes to `hash`; `None` if there is
    /// no such host or no way.
    #[inline]
    pub fn next(&self, switch: usize, to: u32, hash: u32) -> Option<u32> {
        let (goal, port) = (*self.home.get(to as usize)?)?;
        if goal as usize == switch {
            return Some(port);
        }
        let (start, count) = self.spans[switch * self.edges + self.edge[goal as usize] as usize];
        let choice = match count {
            0 => return None,
            1 => 0,
            _ => {
                let mixed =
                    ferroce::rand::Rng::new(self.seeds[switch] ^ u64::from(hash)).next_u64();
                ((mixed >> 32) * u64::from(count)) >> 32
            }
        };
        Some(self.ports[start as usize + choice as usize])
    }

    /// Whether there is a way between two hosts.
    pub fn connects(&self, topology: &Topology, from: usize, to: usize) -> bool {
        match self.home[from] {
            Some((switch, _)) => self.next(switch as usize, to as u32, 0).is_some(),
            // A cable between the two.
            None => {
                let hosts = [Node::Host(from), Node::Host(to)];
                topology.links.iter().any(|link| hosts.iter().all(|host| link.ends.contains(host)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Wire, leaf_spine};

    #[test]
    fn ways_that_are_the_same_to_many_goals_are_kept_once() {
        let (leaves, spines) = (8, 4);
        let wire = Wire { rate: 1_000_000_000, delay: 0 };
        let topology = leaf_spine(leaves, spines, 2, wire, wire).topology;
        let ends = topology.links.iter().flat_map(|link| link.ends.map(|node| (node, link)));
        let rng = || ferroce::rand::Rng::new(1);
        let ports: Vec<Port> =
            ends.map(|(node, link)| Port::new(node, link, false, rng())).collect();
        let routes = Routes::new(&topology, &ports, 1);
        assert_eq!(routes.ports.len(), 2 * leaves * spines);
        for (from, to) in [(0, 15), (1, 14), (15, 0)] {
            assert!(routes.connects(&topology, from, to));
            let mut used: Vec<u32> =
                (0..1000).filter_map(|hash| routes.next(from / 2, to as u32, hash)).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), spines);
        }
    }
}
