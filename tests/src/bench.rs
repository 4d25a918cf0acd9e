//! A plan made real: a world with its objects and memory, before anything is posted.

use std::collections::VecDeque;

use ferroce::rand::Rng;
use ferroce::world::{Endpoint, World};
use ferroce_stack::SrqInit;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Access, Ah, Cq, Mw, Pd, QpInit, QpType, Qpn, Srq, VerbsError, Xrcd};

use crate::flow::FlowPlan;
use crate::model::Area;
use crate::plan::{PairPlan, Plan, PoolPlan, PoolQueue, Service};

/// Bytes of the counter all flows to a node share.
const COUNTER_LEN: usize = 8;

/// A flow at work.
#[derive(Debug)]
pub struct Flow {
    /// Node of its send queue.
    pub node: usize,
    /// Node of its target.
    pub peer: usize,
    /// The QP it is posted to.
    pub qpn: Qpn,
    /// The QP its messages arrive at.
    pub peer_qpn: Qpn,
    /// Where it completes.
    pub send_cq: Cq,
    /// Area of its local bytes.
    pub slab: usize,
    /// Area at the peer.
    pub target: usize,
    /// UD: the way to the peer.
    pub ah: Option<Ah>,
    /// The window this flow binds.
    pub mw: Option<Mw>,
    /// Low byte of the last key given to the window.
    pub variant: u8,
    /// Key and first address of each bind that is complete.
    pub window_keys: Vec<Option<(u32, u64)>>,
    /// Ops posted.
    pub posted: usize,
    /// Ops known to be complete.
    pub retired: usize,
    /// The next may be posted from here on.
    pub next_post: Instant,
    /// Of each op: the message sent, or the bytes a READ or atomic brings.
    pub bytes: Vec<Option<Vec<u8>>>,
    /// Ops whose receive has not completed, for each of its pools.
    pub to_receive: [VecDeque<usize>; 2],
    /// Unreliable: ops delivered.
    pub delivered: Vec<usize>,
}

/// A receive queue at work.
#[derive(Debug)]
pub struct Pool {
    /// The SRQ; none is the QP's own queue.
    pub srq: Option<Srq>,
    /// The QP of an own queue.
    pub qpn: Qpn,
    /// Area of its buffers.
    pub area: usize,
    /// Buffers posted.
    pub posted: usize,
    /// Which have completed.
    pub completed: Vec<bool>,
    /// How many have.
    pub completed_count: usize,
    /// The next is posted from here on.
    pub next_post: Instant,
}

impl Pool {
    /// Buffers posted and not completed.
    pub fn outstanding(&self) -> usize {
        self.posted - self.completed_count
    }
}

/// Everything a simulation works on.
pub struct Bench {
    /// Devices, link and clock.
    pub world: World,
    /// Registered memory.
    pub areas: Vec<Area>,
    /// Both ends of each pair.
    pub ends: Vec<[Endpoint; 2]>,
    /// As in the plan.
    pub flows: Vec<Flow>,
    /// As in the plan.
    pub pools: Vec<Pool>,
    /// Every CQ with its node.
    pub cqs: Vec<(usize, Cq)>,
    /// Area of each node's shared counter.
    pub counters: Vec<usize>,
    /// Original value and addend of each addition to a node's shared counter.
    pub counts: Vec<Vec<(u64, u64)>>,
}

#[derive(Clone, Copy)]
struct NodeObjects {
    pd: Pd,
    /// What pairs with a common CQ complete at.
    cq: Cq,
    srq: Option<Srq>,
}

/// Builds a bench from a plan.
struct Setup<'a> {
    plan: &'a Plan,
    rng: Rng,
    world: World,
    areas: Vec<Area>,
    cqs: Vec<(usize, Cq)>,
    nodes: Vec<NodeObjects>,
}

/// A pair with its SRQs for XRC.
struct Pair {
    ends: [Endpoint; 2],
    srqs: Vec<Srq>,
}

impl Bench {
    /// The bench of a plan.
    ///
    /// # Errors
    /// What a device refuses; nothing should be.
    pub fn new(plan: &Plan) -> Result<Bench, VerbsError> {
        let world = World::new(plan.world.clone())?;
        let rng = Rng::new(!plan.seed);
        let (areas, cqs, nodes) = (Vec::new(), Vec::new(), Vec::new());
        let mut setup = Setup { plan, rng, world, areas, cqs, nodes };
        for node in 0..plan.world.nodes {
            setup.make_node(node)?;
        }
        let counters = setup.make_counters()?;
        let pairs = plan.pairs.iter().enumerate().map(|(index, pair)| setup.connect(index, pair));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        let flows = plan.flows.iter().map(|flow| setup.make_flow(flow, &pairs[flow.pair]));
        let flows = flows.collect::<Result<Vec<_>, _>>()?;
        let pools = setup.make_pools(&pairs)?;
        let Setup { world, areas, cqs, .. } = setup;
        let counts = vec![Vec::new(); counters.len()];
        let ends = pairs.iter().map(|pair| pair.ends).collect();
        Ok(Bench { world, areas, ends, flows, pools, cqs, counters, counts })
    }
}

impl Setup<'_> {
    fn make_node(&mut self, node: usize) -> Result<(), VerbsError> {
        let pd = self.world.device(node).alloc_pd()?;
        let cq = self.make_cq(node, self.plan.shared_cqe)?;
        let pools = &self.plan.pools;
        let shared = |pool: &&PoolPlan| pool.node == node && pool.queue == PoolQueue::Shared;
        let srq = match pools.iter().find(shared) {
            Some(pool) => {
                let max_wr = pool.depth as u32;
                let init = SrqInit { pd, max_wr, max_sge: 3, xrc: None };
                Some(self.world.device(node).create_srq(&init)?)
            }
            None => None,
        };
        self.nodes.push(NodeObjects { pd, cq, srq });
        Ok(())
    }

    fn make_cq(&mut self, node: usize, cqe: usize) -> Result<Cq, VerbsError> {
        let cq = self.world.device(node).create_cq(cqe)?;
        self.cqs.push((node, cq));
        Ok(cq)
    }

    fn make_counters(&mut self) -> Result<Vec<usize>, VerbsError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let areas = (0..self.plan.world.nodes)
            .map(|node| self.make_area(node, self.nodes[node].pd, vec![0; COUNTER_LEN], access));
        let areas = areas.collect::<Result<Vec<_>, _>>()?;
        for &area in &areas {
            self.areas[area].loose = true;
        }
        Ok(areas)
    }

    fn make_area(
        &mut self,
        node: usize,
        pd: Pd,
        content: Vec<u8>,
        access: Access,
    ) -> Result<usize, VerbsError> {
        let shift = if self.rng.chance(0.3) { 0x1000_0000_0000 } else { 0 };
        self.areas.push(Area::new(&mut self.world, node, pd, content, access, shift)?);
        Ok(self.areas.len() - 1)
    }

    fn random_area(
        &mut self,
        (node, pd): (usize, Pd),
        len: usize,
        access: Access,
    ) -> Result<usize, VerbsError> {
        let mut content = vec![0; len];
        self.rng.fill(&mut content);
        self.make_area(node, pd, content, access)
    }

    /// The protection domains of a pair's ends.
    fn domains(&mut self, pair: &PairPlan) -> Result<[Pd; 2], VerbsError> {
        let [first, second] = pair.nodes;
        match pair.own_pd {
            true => {
                Ok([self.world.device(first).alloc_pd()?, self.world.device(second).alloc_pd()?])
            }
            false => Ok([self.nodes[first].pd, self.nodes[second].pd]),
        }
    }

    fn connect(&mut self, index: usize, pair: &PairPlan) -> Result<Pair, VerbsError> {
        let pds = self.domains(pair)?;
        let (srqs, xrcd) = match pair.service {
            Service::Xrc => self.make_xrc_srqs(index, pair, pds[1])?,
            _ => (Vec::new(), None),
        };
        let ends = [self.make_end(pair, 0, pds[0], None)?, self.make_end(pair, 1, pds[1], xrcd)?];
        self.world.connect(&ends[0], &ends[1], &pair.options)?;
        Ok(Pair { ends, srqs })
    }

    fn make_xrc_srqs(
        &mut self,
        index: usize,
        pair: &PairPlan,
        pd: Pd,
    ) -> Result<(Vec<Srq>, Option<Xrcd>), VerbsError> {
        let node = pair.nodes[1];
        let xrcd = self.world.device(node).open_xrcd()?;
        let cq = self.make_cq(node, pair.options.cqe)?;
        let mut srqs = Vec::new();
        for which in 0..2 {
            let queue = PoolQueue::Xrc { pair: index, index: which };
            let pool = self.plan.pools.iter().find(|pool| pool.queue == queue);
            let max_wr = pool.map_or(1, |pool| pool.depth) as u32;
            let max_sge = pair.options.cap.max_recv_sge;
            let init = SrqInit { pd, max_wr, max_sge, xrc: Some((xrcd, cq)) };
            srqs.push(self.world.device(node).create_srq(&init)?);
        }
        Ok((srqs, Some(xrcd)))
    }

    fn make_end(
        &mut self,
        pair: &PairPlan,
        side: usize,
        pd: Pd,
        xrcd: Option<Xrcd>,
    ) -> Result<Endpoint, VerbsError> {
        let node = pair.nodes[side];
        let NodeObjects { cq, srq, .. } = self.nodes[node];
        let cqe = pair.options.cqe;
        let (send_cq, recv_cq) = match pair.shared_cq {
            true => (cq, cq),
            false => (self.make_cq(node, cqe)?, self.make_cq(node, cqe)?),
        };
        let qp_type = match pair.service {
            Service::Rc => QpType::Rc,
            Service::Uc => QpType::Uc,
            Service::Ud => QpType::Ud,
            Service::Xrc if side == 0 => QpType::XrcSend,
            Service::Xrc => QpType::XrcRecv,
        };
        let is_target = qp_type == QpType::XrcRecv;
        let qpn = self.world.device(node).create_qp(&QpInit {
            qp_type,
            pd: (!is_target).then_some(pd),
            send_cq: (!is_target).then_some(send_cq),
            recv_cq: (pair.service != Service::Xrc).then_some(recv_cq),
            srq: srq.filter(|_| pair.srq),
            xrcd,
            cap: pair.options.cap,
            sq_sig_all: pair.options.sq_sig_all,
        })?;
        Ok(Endpoint { node, pd, send_cq, recv_cq, qpn })
    }

    fn make_flow(&mut self, plan: &FlowPlan, pair: &Pair) -> Result<Flow, VerbsError> {
        let pair_plan = &self.plan.pairs[plan.pair];
        let (own, peer) = (&pair.ends[plan.side], &pair.ends[1 - plan.side]);
        let slab = self.random_area((own.node, own.pd), plan.slab_len, Access::LOCAL_WRITE)?;
        let lends = plan.side == 1 && pair_plan.window.is_some();
        let mut access = Access::REMOTE | Access::LOCAL_WRITE;
        if lends {
            access = access | Access::MW_BIND;
        } else if self.rng.chance(0.2) {
            access = access | Access::ZERO_BASED;
        }
        let target = self.random_area((peer.node, peer.pd), plan.target_len, access)?;
        self.areas[target].loose = pair_plan.service == Service::Uc;
        let ah_attr = self.world.ah_attr(peer.node);
        let device = self.world.device(own.node);
        let ah = match pair_plan.service {
            Service::Ud => Some(device.create_ah(own.pd, &ah_attr)?),
            _ => None,
        };
        let mw = match pair_plan.window.filter(|_| plan.side == 0) {
            Some(kind) => Some(device.alloc_mw(own.pd, kind)?.0),
            None => None,
        };
        Ok(Flow {
            node: own.node,
            peer: peer.node,
            qpn: own.qpn,
            peer_qpn: peer.qpn,
            send_cq: own.send_cq,
            slab,
            target,
            ah,
            mw,
            variant: 0,
            window_keys: vec![None; plan.ops.len()],
            posted: 0,
            retired: 0,
            next_post: Instant::ZERO,
            bytes: vec![None; plan.ops.len()],
            to_receive: Default::default(),
            delivered: Vec::new(),
        })
    }

    fn make_pools(&mut self, pairs: &[Pair]) -> Result<Vec<Pool>, VerbsError> {
        let plan = self.plan;
        let mut pools = Vec::new();
        for pool in &plan.pools {
            let pd = match pool.queue {
                PoolQueue::Own { pair, side } => pairs[pair].ends[side].pd,
                PoolQueue::Shared => self.nodes[pool.node].pd,
                PoolQueue::Xrc { pair, .. } => pairs[pair].ends[1].pd,
            };
            let access = Access::LOCAL_WRITE;
            let area = self.random_area((pool.node, pd), pool.slab_len, access)?;
            let (srq, qpn) = match pool.queue {
                PoolQueue::Own { pair, side } => {
                    self.areas[area].loose = plan.pairs[pair].service == Service::Uc;
                    (None, pairs[pair].ends[side].qpn)
                }
                PoolQueue::Shared => (self.nodes[pool.node].srq, Qpn(0)),
                PoolQueue::Xrc { pair, index } => {
                    (pairs[pair].srqs.get(index).copied(), pairs[pair].ends[1].qpn)
                }
            };
            pools.push(Pool {
                srq,
                qpn,
                area,
                posted: 0,
                completed: vec![false; pool.buffers.len()],
                completed_count: 0,
                next_post: Instant::ZERO,
            });
        }
        Ok(pools)
    }
}
