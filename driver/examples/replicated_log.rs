//! A log with three replicas that do nothing: one writer keeps them in step by RDMA alone.
//!
//! The writer appends records with RDMA WRITE, makes them durable with FLUSH, and publishes how far
//! the log is valid with a WRITE with immediate, which takes a receive of the replica and so can
//! wake it. A record counts once two replicas have it. Half way one replica is killed; the writer
//! sees its requests fail and goes on with the other two. At the end it reads the logs back by RDMA
//! READ and compares them. The replicas are processes that register memory and go to sleep: what
//! happens to their memory, their devices do.
//!
//! `replicated_log` runs all of it, the replicas as children of its own. It fails if a log is not
//! what was written.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use ferroce::config::Settings;
use ferroce::verbs::{Access, QpType};
use ferroce::{
    ConnectOptions, Context, Cq, Endpoint, Mr, Qp, QpOptions, RemoteRegion, SendRequest,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const REPLICAS: u8 = 3;
const QUORUM: usize = 2;
const RECORDS: usize = 256;
const RECORD_LEN: usize = 1024;
/// Records between two publications.
const GROUP: usize = 16;
/// When one replica dies.
const DEATH: usize = RECORDS / 2;
/// Where the log begins; before it stands the number of valid records, big-endian.
const HEADER_LEN: usize = 64;
const LOG_LEN: usize = HEADER_LEN + RECORDS * RECORD_LEN;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write(),
        ["replica", number, address] => replicate(number.parse()?, TcpStream::connect(address)?),
        _ => Err("usage: replicated_log".into()),
    }
}

/// Opens a device of its own, as if it were another host.
fn open(host: u8) -> Outcome<Context> {
    let mut settings = Settings::load()?;
    settings.addr = vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))];
    Ok(Context::open(&settings)?)
}

/// Lends the writer memory, and sleeps until it is done.
fn replicate(number: u8, stream: TcpStream) -> Outcome<()> {
    let context = open(10 + number)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(2 * RECORDS as u32)?);
    let rights = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT;
    let log = pd.register_zeroed(LOG_LEN, rights)?;
    let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
    for publication in 0..RECORDS / GROUP {
        qp.post_recv(publication as u64, &[])?;
    }
    writeln!(&stream, "{} {}", qp.endpoint(), log.remote())?;
    let mut lines = BufReader::new(&stream).lines();
    let writer = lines.next().ok_or("the writer has gone")??;
    qp.connect(&writer.parse()?, &ConnectOptions::default())?;
    writeln!(&stream, "ready")?;

    // Asleep, until the writer closes the connection.
    let _ = lines.next();
    let mut valid = 0;
    while let Some(completion) = cq.poll_one() {
        valid = completion.imm().ok_or("a publication without its number")?;
        completion.ok()?;
    }
    println!("replica {number}: woke up, and was told of {valid} records");
    if valid as usize == RECORDS { Ok(()) } else { Err("publications are missing".into()) }
}

/// A replica as the writer sees it.
struct Replica {
    number: u8,
    process: Child,
    stream: TcpStream,
    qp: Qp,
    cq: Cq,
    log: RemoteRegion,
}

fn write() -> Outcome<()> {
    let context = open(1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let pd = context.alloc_pd()?;
    let source = pd.register_zeroed(LOG_LEN, Access::NONE)?;
    let mut replicas = Vec::new();
    for number in 1..=REPLICAS {
        let cq = context.create_cq(256)?;
        let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
        replicas.push(Replica::start(number, &listener, qp, cq)?);
    }
    println!("writer: {REPLICAS} replicas, each with {LOG_LEN} bytes");

    for first in (0..RECORDS).step_by(GROUP) {
        if first == DEATH {
            replicas[1].process.kill()?;
            println!("writer: killed replica 2 after {first} records");
        }
        append(&source, &mut replicas, first)?;
    }
    println!("writer: {RECORDS} records on replicas {}", numbers(&replicas));

    let copy = pd.register_zeroed(LOG_LEN, Access::LOCAL_WRITE)?;
    for replica in &replicas {
        replica.verify(&copy)?;
        println!("writer: replica {} read back, every byte as written", replica.number);
    }
    replicas.into_iter().try_for_each(Replica::end)
}

/// Writes, flushes and publishes the records from `first` on; lets go of replicas that fail.
fn append(source: &Mr, replicas: &mut Vec<Replica>, first: usize) -> Outcome<()> {
    for number in first..first + GROUP {
        source.write_at(HEADER_LEN + number * RECORD_LEN, &record(number))?;
    }
    source.write_at(0, &((first + GROUP) as u64).to_be_bytes())?;
    for replica in &*replicas {
        replica.post_group(source, first)?;
    }
    let mut alive = Vec::new();
    for mut replica in std::mem::take(replicas) {
        match replica.cq.wait(PATIENCE)?.ok() {
            Ok(_) => alive.push(replica),
            Err(error) => {
                println!("writer: going on without replica {}: {error}", replica.number);
                replica.process.kill()?;
                replica.process.wait()?;
            }
        }
    }
    *replicas = alive;
    if replicas.len() < QUORUM { Err("too few replicas are left".into()) } else { Ok(()) }
}

fn numbers(replicas: &[Replica]) -> String {
    let numbers: Vec<String> = replicas.iter().map(|replica| replica.number.to_string()).collect();
    numbers.join(" and ")
}

/// The bytes of record `number`.
fn record(number: usize) -> Vec<u8> {
    (0..RECORD_LEN).map(|at| (number * 37 + at * 11 + at / 256) as u8).collect()
}

impl Replica {
    fn start(number: u8, listener: &TcpListener, qp: Qp, cq: Cq) -> Outcome<Replica> {
        let address = listener.local_addr()?.to_string();
        let process = Command::new(std::env::current_exe()?)
            .args(["replica", &number.to_string(), &address])
            .spawn()?;
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut lines = BufReader::new(&stream).lines();
        let mut line = || lines.next().unwrap_or_else(|| Ok(String::new()));
        let hello = line()?;
        let (endpoint, log) = hello.split_once(' ').ok_or("the replica says nothing")?;
        // A dead replica is given up after about 0.1 s.
        let options = ConnectOptions { timeout: 12, retry_cnt: 5, ..ConnectOptions::default() };
        qp.connect(&endpoint.parse::<Endpoint>()?, &options)?;
        let log = log.parse()?;
        writeln!(&stream, "{}", qp.endpoint())?;
        if line()? != "ready" {
            return Err(format!("replica {number} is not ready").into());
        }
        Ok(Replica { number, process, stream, qp, cq, log })
    }

    /// One completion tells of all of it: work requests are done in order.
    fn post_group(&self, source: &Mr, first: usize) -> Outcome<()> {
        let (start, end) =
            (HEADER_LEN + first * RECORD_LEN, HEADER_LEN + (first + GROUP) * RECORD_LEN);
        let mut batch = self.qp.send_batch();
        for at in (start..end).step_by(RECORD_LEN) {
            let bytes = [source.slice(at..at + RECORD_LEN)?];
            let to = self.log.slice(at..at + RECORD_LEN)?;
            batch.push(&SendRequest::write(0, &bytes, to).unsignaled())?;
        }
        let group = self.log.slice(start..end)?;
        let placement = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        batch.push(&SendRequest::flush(0, group, placement).unsignaled())?;
        // Only after the records are durable, not beside them: it is fenced.
        let valid = [source.slice(..8)?];
        let publish = SendRequest::write_with_imm(0, &valid, self.log, (first + GROUP) as u32);
        batch.push(&publish.fence())?;
        Ok(())
    }

    /// Reads the log into `copy` and compares it with what was written.
    fn verify(&self, copy: &Mr) -> Outcome<()> {
        self.qp.post_send(&SendRequest::read(0, &[copy.slice(..)?], self.log))?;
        self.cq.wait(PATIENCE)?.ok()?;
        let mut valid = [0; 8];
        copy.read_at(0, &mut valid)?;
        let mut bytes = [0; RECORD_LEN];
        for number in 0..RECORDS {
            copy.read_at(HEADER_LEN + number * RECORD_LEN, &mut bytes)?;
            if bytes[..] != record(number) {
                return Err(format!("replica {}: record {number} is wrong", self.number).into());
            }
        }
        match u64::from_be_bytes(valid) == RECORDS as u64 {
            true => Ok(()),
            false => Err(format!("replica {} was not told of all", self.number).into()),
        }
    }

    /// Wakes the replica and hears how it went.
    fn end(self) -> Outcome<()> {
        let Replica { number, mut process, stream, .. } = self;
        stream.shutdown(std::net::Shutdown::Write)?;
        match process.wait()?.success() {
            true => Ok(()),
            false => Err(format!("replica {number} failed").into()),
        }
    }
}
