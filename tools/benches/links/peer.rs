//! One end of a reliable connection: a program on the Rust API, as anybody would write it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferroce::config::Settings;
use ferroce::verbs::{Access, Mtu, QpCap, QpType, WcOpcode};
use ferroce::{
    Completion, ConnectOptions, Context, Cq, Endpoint, Mr, Payload, Qp, QpOptions, RemoteRegion,
    SendRequest,
};

use crate::conversation::Conversation;
use crate::shared::table::median;
use crate::task::{Operation, Task};

/// Bytes on their way, at most; and messages.
const BYTES: usize = 16 << 20;
const DEPTH: usize = 512;
/// Of short messages, one in so many makes a completion.
const SIGNALED: usize = 32;
/// Receives that are posted.
const RECEIVES: usize = 8;
/// What comes before the clock runs, as a part of the time.
const WARM_UP: u32 = 5;
/// After so long nothing comes any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks in vain between two at the clock.
const LOOKS: u32 = 1024;

/// One end.
#[derive(Debug)]
struct Side {
    qp: Qp,
    cq: Cq,
    mr: Mr,
}

/// Does one end's part; what the fabric and the link are, the environment says.
pub fn be(task: &Task, operation: Operation, mtu: usize, talk: Conversation) -> Result<()> {
    let mut talk = talk;
    let side = Side::open(operation)?;
    let own = format!("{} {}", side.qp.endpoint(), side.mr.remote());
    let theirs = talk.meet(&own)?;
    let (endpoint, remote) = theirs.split_once(' ').context("where the peer is")?;
    let (endpoint, remote): (Endpoint, RemoteRegion) = (endpoint.parse()?, remote.parse()?);
    let path_mtu = Some(Mtu::from_bytes(mtu).context("an MTU")?);
    ensure!(endpoint.mtu.bytes() >= mtu, "the link takes no MTU of {mtu}");
    side.qp.connect(&endpoint, &ConnectOptions { path_mtu, ..Default::default() })?;
    if task.is_active {
        let duration = Duration::from_millis(task.millis);
        let figure = match operation {
            Operation::Write(len) => side.write(len, remote, duration)?,
            Operation::PingPong(len) => side.ask(len, duration)?,
        };
        return talk.tell(&format!("figure {figure}"));
    }
    let stop = talk.begin()?;
    while !stop.is_near() {
        match operation {
            Operation::Write(_) => {
                let polled = side.cq.poll(&mut [Completion::default()]);
                ensure!(polled == 0, "a WRITE has made a completion at its target");
            }
            Operation::PingPong(len) => {
                if side.poll_receive()? {
                    side.send(len)?;
                }
            }
        }
    }
    stop.tell("done")
}

impl Side {
    fn open(operation: Operation) -> Result<Side> {
        let (Operation::Write(len) | Operation::PingPong(len)) = operation;
        let context = Context::open(&Settings::load()?)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4 * DEPTH as u32)?;
        let mut options = QpOptions::new(QpType::Rc, &cq);
        options.cap = QpCap { max_send_wr: DEPTH as u32, ..options.cap };
        let qp = pd.create_qp(&options)?;
        let mr = pd.register_zeroed(len, Access::LOCAL_WRITE | Access::REMOTE)?;
        for _ in 0..RECEIVES {
            qp.post_recv(0, &[mr.slice(..)?])?;
        }
        Ok(Side { qp, cq, mr })
    }

    /// Messages of `len` bytes a second.
    fn write(&self, len: usize, remote: RemoteRegion, duration: Duration) -> Result<f64> {
        let depth = (BYTES / len).clamp(2, DEPTH);
        let every = SIGNALED.min(depth / 16).max(1);
        let slices = [self.mr.slice(..len)?];
        let request = SendRequest::write(0, &slices, remote);
        let (mut posted, mut completed) = (0, 0);
        let begin = Instant::now();
        // When the clock began to run, and what was complete.
        let mut start = None;
        let mut batch = [Completion::default(); 16];
        loop {
            let mut requests = self.qp.send_batch();
            while posted - completed + every <= depth {
                for _ in 1..every {
                    requests.push(&request.unsignaled())?;
                }
                requests.push(&request)?;
                posted += every;
            }
            drop(requests);
            let polled = self.cq.poll(&mut batch);
            for completion in &batch[..polled] {
                completion.ok()?;
                completed += every;
            }
            if polled > 0 {
                let now = Instant::now();
                match start {
                    None if now - begin > duration / WARM_UP => start = Some((now, completed)),
                    Some((from, before)) if now - from > duration => {
                        return Ok((completed - before) as f64 / (now - from).as_secs_f64());
                    }
                    _ => {}
                }
            } else {
                ensure!(begin.elapsed() < duration + PATIENCE, "nothing completes any more");
            }
        }
    }

    /// Half a round trip in ns, the median.
    fn ask(&self, len: usize, duration: Duration) -> Result<f64> {
        let begin = Instant::now();
        let mut before = begin;
        let mut halves = Vec::new();
        while before - begin < duration + duration / WARM_UP {
            self.send(len)?;
            let mut looks = 0u32;
            while !self.poll_receive()? {
                looks = looks.wrapping_add(1);
                let is_late = looks.is_multiple_of(LOOKS) && before.elapsed() > PATIENCE;
                ensure!(!is_late, "no answer comes");
            }
            let now = Instant::now();
            if before - begin > duration / WARM_UP {
                halves.push((now - before).as_nanos() as f64 / 2.0);
            }
            before = now;
        }
        Ok(median(halves))
    }

    fn send(&self, len: usize) -> Result<()> {
        let message = [7; 256];
        Ok(self.qp.post_send(&SendRequest::send(0, Payload::Inline(&message[..len])))?)
    }

    /// Takes one completion, if there is one; whether a message has come.
    fn poll_receive(&self) -> Result<bool> {
        let Some(completion) = self.cq.poll_one() else { return Ok(false) };
        let is_receive = completion.ok()?.opcode == WcOpcode::Recv;
        if is_receive {
            self.qp.post_recv(0, &[self.mr.slice(..)?])?;
        }
        Ok(is_receive)
    }
}
