//! Ping-pong: two processes send each other a small message in turn, and the time that takes.
//!
//! `ping_pong` runs both sides. `ping_pong listen PORT` and `ping_pong ADDRESS:PORT` run one each;
//! they tell each other where their QPs are over a TCP connection. Both have to be members of one
//! fabric (`FERROCE_FABRIC`).

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ferroce::config::Settings;
use ferroce::verbs::{Access, QpType, WcOpcode};
use ferroce::{ConnectOptions, Context, Cq, Endpoint, Mr, Payload, Qp, QpOptions, SendRequest};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: u32 = 1000;
const LEN: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => both_sides(),
        ["listen", port] => {
            let (stream, _) = TcpListener::bind(("0.0.0.0", port.parse()?))?.accept()?;
            Side::connect(stream)?.answer()
        }
        [address] => Side::connect(TcpStream::connect(address)?)?.ask(),
        _ => Err("usage: ping_pong [listen PORT | ADDRESS:PORT]".into()),
    }
}

fn both_sides() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let mut child = Command::new(std::env::current_exe()?).arg(address).spawn()?;
    let (stream, _) = listener.accept()?;
    Side::connect(stream)?.answer()?;
    if !child.wait()?.success() {
        return Err("the other side failed".into());
    }
    Ok(())
}

/// One of the two.
struct Side {
    stream: BufReader<TcpStream>,
    qp: Qp,
    cq: Cq,
    mr: Mr,
}

impl Side {
    fn connect(stream: TcpStream) -> Outcome<Side> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let context = Context::open(&Settings::load()?)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let mr = pd.register_zeroed(LEN, Access::LOCAL_WRITE)?;
        let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
        // A receive first: the peer may send as soon as it knows of the QP.
        qp.post_recv(0, &[mr.slice(..)?])?;
        let mut side = Side { stream: BufReader::new(stream), qp, cq, mr };
        let own = side.qp.endpoint().to_string();
        let peer: Endpoint = side.exchange(&own)?.parse()?;
        side.qp.connect(&peer, &ConnectOptions::default())?;
        Ok(side)
    }

    fn ask(mut self) -> Outcome<()> {
        println!("{ROUNDS} rounds of {LEN} bytes");
        let start = Instant::now();
        for round in 0..ROUNDS {
            self.send(round)?;
            self.receive(round)?;
        }
        let half = start.elapsed() / (2 * ROUNDS);
        println!("half a round trip takes {:.2} µs", half.as_nanos() as f64 / 1000.0);
        self.exchange("done").map(drop)
    }

    fn answer(mut self) -> Outcome<()> {
        for round in 0..ROUNDS {
            self.receive(round)?;
            self.send(round)?;
        }
        // What a QP has still to send goes with it: the peer has to have it all first.
        self.exchange("done").map(drop)
    }

    /// Tells the peer a line and hears one from it.
    fn exchange(&mut self, line: &str) -> Outcome<String> {
        writeln!(self.stream.get_mut(), "{line}")?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        Ok(answer)
    }

    fn send(&self, round: u32) -> Outcome<()> {
        let mut message = [0; LEN];
        message[..4].copy_from_slice(&round.to_be_bytes());
        // That it arrived, the answer tells; every 64th completion makes room in the queue.
        let send = SendRequest::send(0, Payload::Inline(&message));
        let send = if round.is_multiple_of(64) { send } else { send.unsignaled() };
        Ok(self.qp.post_send(&send)?)
    }

    fn receive(&self, round: u32) -> Outcome<()> {
        while self.cq.wait(PATIENCE)?.ok()?.opcode != WcOpcode::Recv {}
        let mut number = [0; 4];
        self.mr.read_at(0, &mut number)?;
        if u32::from_be_bytes(number) != round {
            return Err(format!("message {} in round {round}", u32::from_be_bytes(number)).into());
        }
        Ok(self.qp.post_recv(0, &[self.mr.slice(..)?])?)
    }
}
