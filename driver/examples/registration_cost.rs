//! What it costs to register memory for each message, against once for all.
//!
//! Two QPs of one device; one writes messages of several sizes to the other. "once" registers its
//! buffer before the first message. "each" registers it before and deregisters it after every
//! message, and "fresh" also maps a new buffer each time, as a program does that sends whatever it
//! has just allocated. Here a registration is an entry in a table; on hardware it pins pages, and
//! "each" costs tens of microseconds more.

use std::error::Error;
use std::time::{Duration, Instant};

use ferroce::config::Settings;
use ferroce::memory::Region;
use ferroce::verbs::{Access, QpType};
use ferroce::{ConnectOptions, Context, Cq, Mr, Pd, Qp, QpOptions, RemoteRegion, SendRequest};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes written for each figure.
const TOTAL: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let context = Context::open(&Settings::load()?)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let writer = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
    let target = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
    writer.connect(&target.endpoint(), &ConnectOptions::default())?;
    target.connect(&writer.endpoint(), &ConnectOptions::default())?;
    let memory = pd.register_zeroed(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let bench = Bench { pd, cq, qp: writer, remote: memory.remote() };

    println!("ns per message, with memory registered ...");
    println!("{:>9} {:>10} {:>10} {:>10}", "bytes", "once", "each", "fresh");
    for len in SIZES {
        let count = TOTAL / len;
        let once = bench.once(len, count)?;
        let each = bench.each(len, count)?;
        let fresh = bench.fresh(len, count)?;
        println!("{len:>9} {once:>10} {each:>10} {fresh:>10}");
    }
    Ok(())
}

struct Bench {
    pd: Pd,
    cq: Cq,
    qp: Qp,
    remote: RemoteRegion,
}

impl Bench {
    fn once(&self, len: usize, count: usize) -> Outcome<u128> {
        let mr = self.pd.register(touched(len)?, Access::NONE)?;
        per_message(count, || self.write(&mr))
    }

    fn each(&self, len: usize, count: usize) -> Outcome<u128> {
        let mut region = touched(len)?;
        per_message(count, || {
            let mr = self.pd.register(std::mem::take(&mut region), Access::NONE)?;
            self.write(&mr)?;
            region = mr.deregister()?;
            Ok(())
        })
    }

    fn fresh(&self, len: usize, count: usize) -> Outcome<u128> {
        per_message(count, || {
            let mr = self.pd.register(touched(len)?, Access::NONE)?;
            self.write(&mr)
        })
    }

    fn write(&self, mr: &Mr) -> Outcome<()> {
        self.qp.post_send(&SendRequest::write(0, &[mr.slice(..)?], self.remote))?;
        self.cq.wait(PATIENCE)?.ok()?;
        Ok(())
    }
}

/// Memory whose pages are there.
fn touched(len: usize) -> Outcome<Region> {
    let region = Region::zeroed(len)?;
    for offset in (0..len).step_by(4096) {
        region.store_u64(offset, 1)?;
    }
    Ok(region)
}

fn per_message(count: usize, mut message: impl FnMut() -> Outcome<()>) -> Outcome<u128> {
    let start = Instant::now();
    for _ in 0..count {
        message()?;
    }
    Ok(start.elapsed().as_nanos() / count as u128)
}
