//! A transfer of which every byte is compared: `transfer listen PORT`, then `transfer
//! ADDRESS:PORT SECONDS`, which tells each other of their QPs over TCP.
//!
//! In each round the client writes a new pattern to the server, tells it by SEND, waits until the
//! server has compared it and says so, and reads it back. Rounds go on until the time is over, and
//! there is at least one. Prints how many there were, and what it has dropped, by reason.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ferroce::config::Settings;
use ferroce::rand::Rng;
use ferroce::verbs::{Access, QpType, WcOpcode};
use ferroce::{
    ConnectOptions, Context, Cq, Endpoint, Mr, Payload, Qp, QpOptions, RemoteRegion, SendRequest,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LEN: usize = 1 << 20;

/// Longer than any network is held up.
const PATIENCE: Duration = Duration::from_secs(120);

/// About a second for each of the retries: a busy machine is no dead peer.
const TIMEOUT: u8 = 18;

/// What the client says when there are no more rounds.
const END: u64 = u64::MAX;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let context = Context::open(&Settings::load()?)?;
    let rounds = match arguments[..] {
        ["listen", port] => {
            let (stream, _) = TcpListener::bind(("0.0.0.0", port.parse()?))?.accept()?;
            Side::connect(&context, stream)?.serve()?
        }
        [address, seconds] => {
            let time = Duration::from_secs(seconds.parse()?);
            Side::connect(&context, TcpStream::connect(address)?)?.run(time)?
        }
        _ => return Err("usage: transfer [listen PORT | ADDRESS:PORT SECONDS]".into()),
    };
    println!("{rounds} rounds of {LEN} bytes, each as it was sent");
    for (reason, count) in context.counters()?.discards().filter(|&(_, count)| count > 0) {
        println!("{count} dropped: {}", reason.name());
    }
    Ok(())
}

/// One of the two.
struct Side {
    stream: BufReader<TcpStream>,
    qp: Qp,
    cq: Cq,
    /// What is sent, and what is read back.
    own: Mr,
    /// Where the peer writes.
    lent: Mr,
    /// Numbers of rounds.
    note: Mr,
    peer: RemoteRegion,
}

impl Side {
    fn connect(context: &Context, stream: TcpStream) -> Outcome<Side> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let own = pd.register_zeroed(2 * LEN, Access::LOCAL_WRITE)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let lent = pd.register_zeroed(LEN, rights)?;
        let note = pd.register_zeroed(8, Access::LOCAL_WRITE)?;
        let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
        qp.post_recv(0, &[note.slice(..)?])?;
        let mut stream = BufReader::new(stream);
        writeln!(stream.get_mut(), "{} {}", qp.endpoint(), lent.remote())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let (endpoint, region) = line.trim().split_once(' ').ok_or("no answer")?;
        let options = ConnectOptions { timeout: TIMEOUT, ..ConnectOptions::default() };
        qp.connect(&endpoint.parse::<Endpoint>()?, &options)?;
        let peer = region.parse()?;
        Ok(Side { stream, qp, cq, own, lent, note, peer })
    }

    fn run(mut self, time: Duration) -> Outcome<u64> {
        let start = Instant::now();
        let mut round = 0;
        while round == 0 || start.elapsed() < time {
            round += 1;
            let sent = pattern(round);
            self.own.write_at(0, &sent)?;
            let slices = [self.own.slice(..LEN)?];
            self.qp.post_send(&SendRequest::write(0, &slices, self.peer))?;
            self.tell(round)?;
            if self.hear()? != round {
                return Err("the peer is in another round".into());
            }
            let slices = [self.own.slice(LEN..)?];
            self.qp.post_send(&SendRequest::read(0, &slices, self.peer))?;
            while self.cq.wait(PATIENCE)?.ok()?.opcode != WcOpcode::RdmaRead {}
            compare(&self.own, LEN, &sent, round)?;
        }
        self.tell(END)?;
        self.part(round)
    }

    fn serve(mut self) -> Outcome<u64> {
        let mut rounds = 0;
        loop {
            let round = self.hear()?;
            if round == END {
                return self.part(rounds);
            }
            compare(&self.lent, 0, &pattern(round), round)?;
            rounds += 1;
            self.tell(round)?;
        }
    }

    /// Ends when the peer has everything.
    fn part(&mut self, rounds: u64) -> Outcome<u64> {
        writeln!(self.stream.get_mut(), "done")?;
        self.stream.read_line(&mut String::new())?;
        Ok(rounds)
    }

    fn tell(&self, round: u64) -> Outcome<()> {
        let bytes = round.to_be_bytes();
        Ok(self.qp.post_send(&SendRequest::send(0, Payload::Inline(&bytes)))?)
    }

    fn hear(&self) -> Outcome<u64> {
        while self.cq.wait(PATIENCE)?.ok()?.opcode != WcOpcode::Recv {}
        let mut bytes = [0; 8];
        self.note.read_at(0, &mut bytes)?;
        self.qp.post_recv(0, &[self.note.slice(..)?])?;
        Ok(u64::from_be_bytes(bytes))
    }
}

/// What is sent in a round.
fn pattern(round: u64) -> Vec<u8> {
    let mut rng = Rng::new(round);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.take(LEN / 8).flatten().collect()
}

fn compare(mr: &Mr, at: usize, expected: &[u8], round: u64) -> Outcome<()> {
    let mut bytes = vec![0; LEN];
    mr.read_at(at, &mut bytes)?;
    match bytes.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("round {round}: byte {at} is not what was sent").into()),
        None => Ok(()),
    }
}
