//! `ferroce conform`: carries out scenarios against an implementation, and judges it.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use ferroce::link::LinkName;
use ferroce_conform::agent;
use ferroce_conform::known::Known;
use ferroce_conform::report::{
    Junit, Totals, case_json, explain, summary_json, write_evidence, write_totals,
};
use ferroce_conform::run::{Options, Verdict};
use ferroce_conform::session::{self, Judged, Status};
use ferroce_conform::suite::{Case, Suite};
use ferroce_conform::wire::{Means, WireOptions, WireTarget};
use serde_json::json;

use crate::decode::Outcome;

/// Shown below `ferroce conform --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce conform --memory                        the whole suite, against our own stack
  ferroce conform --memory responder              the scenarios of one file
  ferroce conform --memory 'responder/*-key' -v   some of them, a line each
  ferroce conform --memory --tag psn --tag rnr    those with one of these tags
  ferroce conform --memory mine.scenario          a file of your own
  ferroce conform --link packet:eth0 --target 192.0.2.1 -v  an implementation on the wire
  ferroce conform --link packet:eth0 --target 192.0.2.1 --cm 7174 connected
                                                  the same by connections, without an agent
  ferroce conform --check mine.scenario           is it written right? (judges nothing)
  ferroce conform --list                          what there is
  ferroce conform --memory --json | jq 'select(.status == \"failed\")'
  ferroce conform --memory --junit report.xml --output evidence

A scenario says what a peer sends and what the implementation must then do;
docs/scenarios.md describes the language, and begins with how to write one. NAME is the file's and the scenario's
name with a slash between, or one of the two; * stands for anything, ? for one
character. With a FILE or folder, names choose among its scenarios; else among
those of the suite, which is built in.

--memory judges our own stack on a virtual clock: nothing waits, and the same
scenario gives the same frames, byte for byte.

--link and --target judge whatever has that address on the wire of an interface.
Frames leave and arrive as they are, so the link is packet:IFACE or xdp:IFACE
(which need CAP_NET_RAW). The verbs of the target are called by `ferroce
conform-agent` there, over TCP, which need not be on the same network. With --cm
there is no agent: QPs are those with which a program of the target, such as
`rping -s -P`, accepts connections at that port; scenarios that need verbs are
left out. The peer has the interface's address, or with --addr one of its own
that nobody else has.

Of a scenario that fails, the sentence is shown that was not met, the rule it
rests on, what came instead, field by field, and what happened before. --output
writes that, the frames as pcapng, and a drawing of them, as DIR/FILE/SCENARIO.txt,
.pcapng and .svg; `ferroce decode` reads the frames.

--known names a file of what is known of an implementation: a line
`NAME: REASON` for each scenario that it is expected to fail, with the evidence;
lines with # are comments. `never raises EVENT: REASON` is about all scenarios:
the event is not waited for. `does not keep FIELD: REASON` is about all frames:
the field is not judged where no sentence names it. `does not survive NAME:
REASON` is about a scenario that would end the implementation, and is not
carried out. Such a failure counts as a deviation. A scenario that passes
although it is listed is told of.

JSON: an object a line for each scenario, with `status` passed, failed, deviates
or skipped, then {\"summary\": ...}.

Exit status: 0 all passed, were skipped or deviate as known, 1 some failed, 2 the
arguments or a scenario are wrong, or something could not be read or written.";

/// Judge an implementation by scenarios of what a peer may do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Scenarios by name, or files and folders of them; else the whole suite
    #[arg(value_name = "FILE|NAME")]
    scenarios: Vec<String>,
    /// Judge our own stack, in memory, on a virtual clock
    #[arg(long)]
    memory: bool,
    /// Judge an implementation on the wire of this link: packet:IFACE or xdp:IFACE
    #[arg(long, value_name = "LINK", requires = "target", conflicts_with = "memory")]
    link: Option<LinkName>,
    /// Its address
    #[arg(long, value_name = "IP", requires = "link")]
    target: Option<IpAddr>,
    /// Where its agent listens [default: port 4780 of the target]
    #[arg(long, value_name = "ADDR:PORT", requires = "link")]
    agent: Option<SocketAddr>,
    /// Without an agent: make QPs by connections to a program of the target that listens at this
    /// port, such as `rping -s -P`
    #[arg(long, value_name = "PORT", requires = "link", conflicts_with = "agent")]
    cm: Option<u16>,
    /// An address of the peer's own, to have instead of the interface's; may be repeated
    #[arg(long, value_name = "IP", requires = "link")]
    addr: Vec<IpAddr>,
    /// Only scenarios with this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Write JSON, an object a line
    #[arg(long)]
    json: bool,
    /// Write a report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write what happened in scenarios that failed, and their frames, to this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Deviations that are known of the implementation
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Scenarios carried out at a time; else as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Tell of every scenario, not only of those that failed
    #[arg(short, long)]
    verbose: bool,
    /// List the scenarios with their tags, and carry out none
    #[arg(long, conflicts_with_all = ["memory", "link", "check"])]
    list: bool,
    /// Say whether the scenarios are written right, and judge nothing by them
    #[arg(long, conflicts_with_all = ["memory", "link"])]
    check: bool,
}

/// Runs `ferroce conform`.
///
/// # Errors
/// If a scenario is not known or wrongly written, or something cannot be read or written.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    if !(arguments.memory || arguments.link.is_some() || arguments.list || arguments.check) {
        bail!(
            "what is to be judged? --memory: our own stack; --link LINK --target IP: an \
             implementation on the wire"
        );
    }
    let suite = load(arguments)?;
    for problem in &suite.problems {
        // Nobody may be there to be told.
        let _ = writeln!(io::stderr(), "{problem}");
    }
    let mut out = io::stdout().lock();
    match carry_out(arguments, &suite.cases, &mut out) {
        Err(error) if is_broken_pipe(&error) => Ok(Outcome::Clean),
        Err(error) => Err(error),
        Ok(Carried { failed, mistakes }) => match mistakes + suite.problems.len() {
            0 if failed => Ok(Outcome::Violations),
            0 => Ok(Outcome::Clean),
            mistakes => bail!("{} in scenarios", counted(mistakes, "mistake")),
        },
    }
}

/// What came of the scenarios.
#[derive(Default)]
struct Carried {
    /// One at least was not passed.
    failed: bool,
    /// Scenarios that cannot be carried out as they are written.
    mistakes: usize,
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn carry_out(arguments: &Arguments, cases: &[Case], out: &mut dyn Write) -> Result<Carried> {
    match (arguments.list, arguments.check) {
        (true, _) => list(cases, arguments.json, out).context("cannot write"),
        (_, true) => check(arguments, cases, out),
        _ => judge(arguments, cases, out),
    }
}

/// Plays scenarios in memory, to find what is only known then: objects, sizes, values.
fn check(arguments: &Arguments, cases: &[Case], out: &mut dyn Write) -> Result<Carried> {
    let known = Known::default();
    let mut mistakes = 0;
    session::run_in_memory(cases, &known, jobs(arguments), |judged| -> Result<()> {
        if let Verdict::Invalid(error) = &judged.outcome.verdict {
            mistakes += 1;
            let _ = writeln!(io::stderr(), "{}", judged.case.problem(error));
        }
        Ok(())
    })?;
    let right = match cases.len() - mistakes {
        1 => "1 scenario is".to_owned(),
        right => format!("{right} scenarios are"),
    };
    writeln!(out, "{right} written right").context("cannot write")?;
    Ok(Carried { failed: false, mistakes })
}

/// Whether whoever reads (`head`) has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The scenarios that the arguments name.
fn load(arguments: &Arguments) -> Result<Suite> {
    let is_path =
        |argument: &&String| argument.ends_with(".scenario") || Path::new(argument).exists();
    let (paths, names): (Vec<&String>, Vec<&String>) =
        arguments.scenarios.iter().partition(is_path);
    let mut suite = match paths.is_empty() {
        true => Suite::built_in(),
        false => Suite::default(),
    };
    for path in paths {
        let before = suite.cases.len() + suite.problems.len();
        suite.load(Path::new(path)).with_context(|| format!("cannot read {path}"))?;
        if suite.cases.len() + suite.problems.len() == before {
            bail!("no file in {path} has a name that ends in .scenario");
        }
    }
    let names: Vec<String> = names.into_iter().cloned().collect();
    match suite.choose(&names, &arguments.tag) {
        Ok(()) => {}
        // One that cannot be read may have it.
        Err(_) if !suite.problems.is_empty() => suite.cases.clear(),
        Err(error) => bail!(error),
    }
    Ok(suite)
}

fn list(cases: &[Case], json: bool, out: &mut dyn Write) -> io::Result<Carried> {
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or_default();
    for Case { name, file, scenario, .. } in cases {
        let tags: Vec<&str> = scenario.tags.iter().map(|tag| tag.value.as_str()).collect();
        let needs: Vec<&str> = scenario.needs.iter().map(|need| need.value.as_str()).collect();
        let title = &scenario.title;
        match json {
            true => writeln!(
                out,
                "{}",
                json!({
                    "scenario": name,
                    "title": title,
                    "file": **file,
                    "line": scenario.name.line,
                    "tags": tags,
                    "needs": needs,
                })
            )?,
            false => writeln!(out, "{name:width$}  {title} [{}]", tags.join(" "))?,
        }
    }
    Ok(Carried::default())
}

fn judge(arguments: &Arguments, cases: &[Case], out: &mut dyn Write) -> Result<Carried> {
    let known = match &arguments.known {
        None => Known::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Known::parse(&text)
                .map_err(anyhow::Error::msg)
                .with_context(|| path.display().to_string())?
        }
    };
    let (totals, junit) = (Totals::default(), Junit::default());
    let mut teller = Teller { arguments, totals, mistakes: 0, junit, out };
    match wire(arguments) {
        Some(options) => {
            let mut target = WireTarget::open(&options)?;
            let mut unraised = known.unraised().to_vec();
            unraised.extend(options.means.unraised());
            let unkept = known.unkept().to_vec();
            let options = Options { unraised, unkept, ..Options::WIRE };
            let tell = |judged: Judged<'_>| teller.tell(&judged);
            session::run_on(&mut target, &options, cases, &known, tell)?;
        }
        None => {
            session::run_in_memory(cases, &known, jobs(arguments), |judged| teller.tell(&judged))?;
        }
    }
    teller.finish()
}

/// Where the target is, if it is on the wire.
fn wire(arguments: &Arguments) -> Option<WireOptions> {
    let (link, target) = (arguments.link.clone()?, arguments.target?);
    let agent = arguments.agent.unwrap_or(SocketAddr::new(target, agent::PORT));
    let means = arguments.cm.map_or(Means::Agent(agent), Means::Program);
    Some(WireOptions { link, own: arguments.addr.clone(), target, means })
}

/// Scenarios that are carried out at a time in memory.
fn jobs(arguments: &Arguments) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    arguments.jobs.map_or_else(processors, usize::from)
}

/// Tells of scenarios as they end.
struct Teller<'a> {
    arguments: &'a Arguments,
    totals: Totals,
    mistakes: usize,
    junit: Junit,
    out: &'a mut dyn Write,
}

impl Teller<'_> {
    fn tell(&mut self, judged: &Judged<'_>) -> Result<()> {
        self.totals.count(judged);
        if self.arguments.junit.is_some() {
            self.junit.add(judged);
        }
        self.mistakes += usize::from(matches!(judged.outcome.verdict, Verdict::Invalid(_)));
        let status = judged.status();
        let mut evidence = None;
        let mut object = self.arguments.json.then(|| case_json(judged));
        if let Some(folder) = &self.arguments.output
            && matches!(status, Status::Failed | Status::Deviates)
        {
            let files = write_evidence(folder, judged)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
            if let Some(object) = &mut object {
                object["evidence"] = json!(files);
            }
            evidence = files.into_iter().next();
        }
        match object {
            Some(object) => writeln!(self.out, "{object}"),
            None if status == Status::Failed || self.arguments.verbose => {
                write!(self.out, "{}", explain(judged)).and_then(|()| match evidence {
                    None => Ok(()),
                    Some(text) => writeln!(
                        self.out,
                        "  evidence: {}, and .pcapng, .svg beside it\n",
                        text.display()
                    ),
                })
            }
            None => Ok(()),
        }
        .context("cannot write")
    }

    fn finish(self) -> Result<Carried> {
        if let Some(path) = &self.arguments.junit {
            fs::write(path, self.junit.finish())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        match self.arguments.json {
            true => writeln!(self.out, "{}", summary_json(&self.totals)),
            // All are written wrong.
            false if self.totals.all() == 0 => Ok(()),
            false => write_totals(&self.totals, self.out),
        }
        .context("cannot write")?;
        let failed = self.totals.of(Status::Failed) > 0;
        Ok(Carried { failed, mistakes: self.mistakes })
    }
}
