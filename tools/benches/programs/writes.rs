//! WRITEs between two devices of this process, each polled by a thread of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use ferroce::config::Settings;
use ferroce::verbs::{Access, Mtu, QpType};
use ferroce::{Completion, ConnectOptions, Context, Cq, Mr, Qp, QpOptions, SendRequest};

use crate::shared::machine::pin;

/// Messages on their way.
const OUTSTANDING: usize = 16;

/// One device with one QP.
#[derive(Debug)]
pub struct Side {
    /// The QP.
    pub qp: Qp,
    /// Where it completes.
    pub cq: Cq,
    /// What it writes, and others may write to.
    pub mr: Mr,
}

impl Side {
    /// Opens a device of the fabric.
    pub fn open(fabric: &Path, len: usize) -> Result<Side> {
        let mut settings = Settings::default();
        settings.fabric = fabric.to_owned();
        let context = Context::open(&settings)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(4 * OUTSTANDING as u32)?;
        let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
        let mr = pd.register_zeroed(len, Access::LOCAL_WRITE | Access::REMOTE)?;
        Ok(Side { qp, cq, mr })
    }

    /// Connects two.
    pub fn connect(&self, peer: &Side) -> Result<()> {
        let options = ConnectOptions { path_mtu: Some(Mtu::Mtu4096), ..Default::default() };
        self.qp.connect(&peer.qp.endpoint(), &options)?;
        Ok(peer.qp.connect(&self.qp.endpoint(), &options)?)
    }

    /// Writes the first `len` bytes to the peer's, `count` times.
    fn write(&self, peer: &Side, len: usize, count: usize) -> Result<()> {
        let slices = [self.mr.slice(..len)?];
        let request = SendRequest::write(0, &slices, peer.mr.remote());
        let (mut posted, mut completed) = (0, 0);
        let mut batch = [Completion::default(); OUTSTANDING];
        while completed < count {
            while posted < count.min(completed + OUTSTANDING) {
                self.qp.post_send(&request)?;
                posted += 1;
            }
            let polled = self.cq.poll(&mut batch);
            for completion in &batch[..polled] {
                completion.ok()?;
            }
            completed += polled;
        }
        Ok(())
    }
}

/// Bytes a second, in GB/s.
pub fn bandwidth(fabric: &Path, cpus: (usize, usize), len: usize, count: usize) -> Result<f64> {
    let (a, b) = (Side::open(fabric, len)?, Side::open(fabric, len)?);
    a.connect(&b)?;
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let target = scope.spawn(|| {
            let pinned = pin(cpus.1);
            let mut polled = 0;
            while !is_over.load(Ordering::Relaxed) {
                polled += b.cq.poll(&mut [Completion::default()]);
            }
            pinned.map(|()| polled)
        });
        let source = scope.spawn(|| {
            let timed = pin(cpus.0).and_then(|()| {
                a.write(&b, len, count.div_ceil(8))?;
                let start = Instant::now();
                a.write(&b, len, count)?;
                Ok(start.elapsed())
            });
            is_over.store(true, Ordering::Relaxed);
            timed
        });
        let elapsed = source.join().expect("the source does not panic")?;
        Ok::<_, anyhow::Error>((elapsed, target.join().expect("the target does not panic")?))
    });
    let (elapsed, polled) = outcome?;
    ensure!(polled == 0, "a WRITE has made {polled} completions at its target");
    Ok((len * count) as f64 / elapsed.as_nanos() as f64)
}
