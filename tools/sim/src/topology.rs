//! Topologies by name.
//!
//! Hosts are called `h0`, `h1`, …, switches by their part: `s0`, `leaf0`, `spine0`, `edge0`,
//! `agg0`, `core0`, `left`, `right`. A port is called after its node and what its link leads to:
//! `leaf0:h3` is the port of `leaf0` towards `h3`. Of several links between the same two nodes the
//! second is `leaf0:spine0#2`.

use std::collections::VecDeque;

use crate::plan::{Link, Node, Topology};

/// The most hosts and the most switches.
pub const MAX_NODES: usize = 4096;

/// Rate and delay of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bits per second each way.
    pub rate: u64,
    /// Nanoseconds a bit takes from end to end.
    pub delay: u64,
}

/// A topology whose nodes and ports have names.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// It.
    pub topology: Topology,
    switches: Vec<String>,
    /// Of each host, the end that is its port, if it has one: `2 * link + end`.
    host_ends: Vec<Option<usize>>,
    /// Of each end of each link, as numbered in [`Outcome::ports`](crate::Outcome::ports).
    ports: Vec<String>,
}

impl Network {
    /// Names everything.
    fn new(switches: Vec<String>, hosts: usize, links: Vec<Link>) -> Network {
        let mut host_ends = vec![None; hosts];
        for (end, node) in links.iter().flat_map(|link| link.ends).enumerate() {
            if let Node::Host(host) = node {
                host_ends[host].get_or_insert(end);
            }
        }
        let mut network = Network {
            topology: Topology { hosts, switches: switches.len(), links },
            switches,
            host_ends,
            ports: Vec::new(),
        };
        let mut last = Vec::<([Node; 2], usize)>::new();
        for link in network.topology.links.clone() {
            let mut pair = link.ends;
            pair.sort();
            last.push((pair, last.len()));
        }
        let mut sorted = last.clone();
        sorted.sort();
        for (pair, index) in last {
            let place = sorted.binary_search(&(pair, index)).unwrap_or(0);
            let first = sorted.partition_point(|entry| entry.0 < pair);
            let suffix = match place - first {
                0 => String::new(),
                earlier => format!("#{}", earlier + 1),
            };
            let [a, b] = network.topology.links[index].ends.map(|node| network.node(node));
            network.ports.push(format!("{a}:{b}{suffix}"));
            network.ports.push(format!("{b}:{a}{suffix}"));
        }
        network
    }

    /// A node's name.
    pub fn node(&self, node: Node) -> String {
        match node {
            Node::Host(host) => format!("h{host}"),
            Node::Switch(switch) => self.switches[switch].clone(),
        }
    }

    /// The name of an end of a link: `2 * link + end`.
    pub fn port(&self, port: usize) -> &str {
        &self.ports[port]
    }

    /// The names of all ports.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// A port by its name, or that of a host by the host's: `2 * link + end`.
    pub fn end(&self, name: &str) -> Option<usize> {
        if let Some(port) = self.ports.iter().position(|port| port == name) {
            return Some(port);
        }
        let host: usize = name.strip_prefix('h')?.parse().ok()?;
        *self.host_ends.get(host)?
    }

    /// The link of a port, or of a host, by its name.
    pub fn link(&self, name: &str) -> Option<usize> {
        Some(self.end(name)? / 2)
    }

    /// The rate of a host's link, in bits per second.
    pub fn host_rate(&self, host: usize) -> u64 {
        let end = self.host_ends.get(host).copied().flatten();
        end.map_or(0, |end| self.topology.links[end / 2].rate)
    }

    /// The rate of the hosts' fastest link, in bits per second.
    pub fn fastest_host_rate(&self) -> u64 {
        (0..self.topology.hosts).map(|host| self.host_rate(host)).max().unwrap_or(0)
    }

    /// Of each host, the links on a shortest way to it from `from`; empty for `from` itself, and
    /// for a host that cannot be reached.
    pub fn paths(&self, from: usize) -> Vec<Vec<usize>> {
        let Topology { hosts, switches, ref links } = self.topology;
        let place = |node: Node| match node {
            Node::Host(host) => host,
            Node::Switch(switch) => hosts + switch,
        };
        let mut neighbours = vec![Vec::new(); hosts + switches];
        for (index, link) in links.iter().enumerate() {
            let [a, b] = link.ends.map(place);
            neighbours[a].push((b, index));
            neighbours[b].push((a, index));
        }
        let mut via = vec![None; hosts + switches];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for &(next, link) in &neighbours[node] {
                if next != from && via[next].is_none() {
                    via[next] = Some((node, link));
                    queue.push_back(next);
                }
            }
        }
        let path = |host: usize| {
            let mut path = Vec::new();
            let mut node = host;
            while let Some((before, link)) = via[node] {
                path.push(link);
                node = before;
            }
            path.reverse();
            path
        };
        (0..hosts).map(path).collect()
    }
}

/// Hosts around one switch.
pub fn star(hosts: usize, wire: Wire) -> Network {
    let links = (0..hosts).map(|host| link(Node::Host(host), Node::Switch(0), wire)).collect();
    Network::new(vec!["s0".to_owned()], hosts, links)
}

/// Two switches with hosts each: `left` has `h0` and following, `right` the rest.
pub fn dumbbell(left: usize, right: usize, wire: Wire, bottleneck: Wire) -> Network {
    let side = |host| Node::Switch(usize::from(host >= left));
    let hosts = left + right;
    let mut links: Vec<_> =
        (0..hosts).map(|host| link(Node::Host(host), side(host), wire)).collect();
    links.push(link(Node::Switch(0), Node::Switch(1), bottleneck));
    Network::new(vec!["left".to_owned(), "right".to_owned()], hosts, links)
}

/// Every leaf is connected with every spine.
pub fn leaf_spine(
    leaves: usize,
    spines: usize,
    hosts_per_leaf: usize,
    wire: Wire,
    uplink: Wire,
) -> Network {
    let hosts = leaves * hosts_per_leaf;
    let leaf = |host| Node::Switch(host / hosts_per_leaf);
    let mut links: Vec<_> =
        (0..hosts).map(|host| link(Node::Host(host), leaf(host), wire)).collect();
    for leaf in 0..leaves {
        for spine in 0..spines {
            links.push(link(Node::Switch(leaf), Node::Switch(leaves + spine), uplink));
        }
    }
    let names = numbered("leaf", leaves).chain(numbered("spine", spines)).collect();
    Network::new(names, hosts, links)
}

/// A fat tree of switches with `k` ports each: `k` pods of `k / 2` edge and `k / 2` aggregation
/// switches, `k² / 4` core switches, `k³ / 4` hosts. `k` is even.
pub fn fat_tree(k: usize, wire: Wire) -> Network {
    let half = k / 2;
    let (hosts, edges, cores) = (k * half * half, k * half, half * half);
    let edge = |number: usize| Node::Switch(number);
    let agg = |number: usize| Node::Switch(edges + number);
    let core = |number: usize| Node::Switch(2 * edges + number);
    let mut links: Vec<_> =
        (0..hosts).map(|host| link(Node::Host(host), edge(host / half), wire)).collect();
    for pod in 0..k {
        for lower in 0..half {
            for upper in 0..half {
                links.push(link(edge(pod * half + lower), agg(pod * half + upper), wire));
            }
        }
    }
    for pod in 0..k {
        for upper in 0..half {
            for port in 0..half {
                links.push(link(agg(pod * half + upper), core(upper * half + port), wire));
            }
        }
    }
    let names = numbered("edge", edges).chain(numbered("agg", edges));
    Network::new(names.chain(numbered("core", cores)).collect(), hosts, links)
}

/// Links as they are listed: each with its ends, by number.
///
/// # Errors
/// Says what is missing: a host has one link, and leads everywhere.
pub fn explicit(hosts: usize, switches: usize, links: Vec<Link>) -> Result<Network, String> {
    for host in 0..hosts {
        let node = Node::Host(host);
        let count = links.iter().filter(|link| link.ends.contains(&node)).count();
        if count != 1 {
            return Err(format!("h{host} has {count} links: expected 1"));
        }
    }
    let network = Network::new(numbered("s", switches).collect(), hosts, links);
    let paths = network.paths(0);
    match (1..hosts).find(|host| paths[*host].is_empty()) {
        Some(host) => Err(format!("there is no way from h0 to h{host}")),
        None => Ok(network),
    }
}

fn link(a: Node, b: Node, wire: Wire) -> Link {
    Link { ends: [a, b], rate: wire.rate, delay: wire.delay }
}

fn numbered(part: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{part}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { rate: 100_000_000_000, delay: 1_000 };

    fn hops(network: &Network, from: usize, to: usize) -> usize {
        network.paths(from)[to].len()
    }

    #[test]
    fn a_fat_tree_has_the_nodes_and_ways_of_the_definition() {
        for k in [2, 4, 8] {
            let network = fat_tree(k, WIRE);
            let topology = &network.topology;
            assert_eq!(topology.hosts, k * k * k / 4);
            assert_eq!(topology.switches, 5 * k * k / 4);
            for switch in 0..topology.switches {
                let ports = topology.links.iter().flat_map(|link| link.ends);
                assert_eq!(ports.filter(|end| *end == Node::Switch(switch)).count(), k);
            }
            assert_eq!(hops(&network, 0, topology.hosts - 1), 6);
        }
        let network = fat_tree(4, WIRE);
        assert_eq!((hops(&network, 0, 1), hops(&network, 0, 2), hops(&network, 0, 4)), (2, 4, 6));
    }

    #[test]
    fn leaves_are_one_spine_apart() {
        let network = leaf_spine(3, 2, 4, WIRE, WIRE);
        assert_eq!(network.topology.hosts, 12);
        assert_eq!((hops(&network, 0, 3), hops(&network, 0, 4)), (2, 4));
        assert_eq!(network.port(2 * 12), "leaf0:spine0");
        assert_eq!(network.link("spine1:leaf2"), Some(12 + 5));
        assert_eq!(network.link("h3"), Some(3));
        assert_eq!(network.link("h12"), None);
    }

    #[test]
    fn a_dumbbell_has_one_link_between_its_sides() {
        let network = dumbbell(2, 1, WIRE, Wire { rate: 10, delay: 5 });
        assert_eq!(network.topology.links[3].rate, 10);
        assert_eq!(network.paths(0)[2], [0, 3, 2]);
        assert_eq!(network.port(7), "right:left");
    }

    #[test]
    fn parallel_links_have_names_of_their_own() {
        let (a, b) = (Node::Switch(0), Node::Switch(1));
        let links = vec![
            link(Node::Host(0), a, WIRE),
            link(Node::Host(1), b, WIRE),
            link(a, b, WIRE),
            link(b, a, WIRE),
        ];
        let network = explicit(2, 2, links).unwrap();
        assert_eq!(network.ports()[4..], ["s0:s1", "s1:s0", "s1:s0#2", "s0:s1#2"]);
    }

    #[test]
    fn a_network_in_parts_is_refused() {
        let links = vec![
            link(Node::Host(0), Node::Switch(0), WIRE),
            link(Node::Host(1), Node::Switch(1), WIRE),
        ];
        assert_eq!(explicit(2, 2, links).unwrap_err(), "there is no way from h0 to h1");
        assert_eq!(explicit(1, 1, Vec::new()).unwrap_err(), "h0 has 0 links: expected 1");
    }
}
