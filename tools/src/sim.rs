//! `ferroce sim`: a network on a virtual clock, from a file; its figures on the terminal, the rest
//! in a folder.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use ferroce_sim::config::{Document, Experiment, Setting};
use ferroce_sim::plan::{Ecn, Node, Pfc, Switch};
use ferroce_sim::plot::Chart;
use ferroce_sim::report::stats::{Spread, Times};
use ferroce_sim::report::summary::{Group, Summary};
use ferroce_sim::report::{Folder, Run, warnings, write_json};
use ferroce_sim::sweep::{self, Drawing, Request, Row, Sweep, Table, Task};
use ferroce_sim::{Outcome, SimError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::table::{empty_table, write_table};

/// Shown below `ferroce sim --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce sim docs/sim/two-flows.toml
  ferroce sim docs/sim/incast.toml --set host.congestion=dcqcn --set switch.pfc.enabled=false
  ferroce sim docs/sim/incast.toml --set workload.0.senders=2,4,8,16,32 --seeds 5 --plot jain
  ferroce sim docs/sim/incast.toml --replot --plot goodput_gbps,fct_p99_us
  ferroce sim docs/sim/incast.toml --check    what would be simulated?
  ferroce sim docs/sim/two-flows.toml --json | jq .all.jain

docs/sim.md describes the file, beginning with a tutorial. Hosts are the real
transport, every packet its own; only links, switches and what programs do are
modelled. The same file and seed give the same bytes.

--out is a new or empty folder, by default one named after the file in the working directory:
flows.csv, ports.csv, samples.csv, summary.json, plots as SVG, captures as pcapng.

--set changes a key of the file; an element of an array goes by its number or its
name: workload.0.size, workload.victim.size. With several values (a,b,c), or
--seeds, or [sweep] in the file, it is a sweep: every combination with every seed,
in --jobs threads, a row each in sweep.csv and sweep.json. --set of one value takes
its key out of the sweep. sweep.svg draws a metric (--plot) against a key
(--against); of several metrics, sweep-METRIC.svg each. --replot draws them again
from the sweep.json that is there.

Exit status: 0, or 2 if the file or an argument is wrong, the folder is there
already (without --force), or something could not be read or written.";

/// Simulate a network of hosts and switches on a virtual clock.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What to simulate
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Folder for what comes out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write into the folder even if it is there already
    #[arg(long)]
    force: bool,
    /// Set a key, or several values that it takes in turn; seed=1,2,3 are those seeds
    #[arg(long, value_name = "KEY=VALUE[,VALUE...]", value_parser = setting)]
    set: Vec<(String, Vec<String>)>,
    /// Seed, or the first one of a sweep
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds each combination of a sweep is run with
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Threads for a sweep [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Metric that a sweep draws, or several [default: that of the file, or goodput_gbps]
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    plot: Vec<String>,
    /// Key that a sweep draws it against [default: that of the file, or the one with most numbers]
    #[arg(long, value_name = "KEY")]
    against: Option<String>,
    /// Draw a sweep that is in the folder again, and simulate nothing
    #[arg(long, conflicts_with_all = ["set", "seed", "seeds", "jobs", "force", "check"])]
    replot: bool,
    /// Say what would be simulated, and do not
    #[arg(long)]
    check: bool,
    /// Write summary.json, or sweep.json, to standard output instead of a table
    #[arg(long, conflicts_with_all = ["check", "replot"])]
    json: bool,
}

/// `KEY=VALUE[,VALUE...]`.
fn setting(text: &str) -> Result<(String, Vec<String>), String> {
    match text.split_once('=') {
        Some((key, values)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), sweep::values(values)))
        }
        _ => Err("expected KEY=VALUE, such as host.congestion=dcqcn".to_owned()),
    }
}

/// Runs `ferroce sim`.
///
/// # Errors
///
/// If the file or an argument is wrong, or something cannot be read or written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let document = Document::read(&arguments.file)?;
    if arguments.replot {
        return replot(arguments, &document);
    }
    let request = Request {
        set: arguments.set.clone(),
        seed: arguments.seed,
        seeds: arguments.seeds,
        plot: arguments.plot.clone(),
        against: arguments.against.clone(),
    };
    let (task, notes) = request.task(&document)?;
    for note in notes {
        eprintln!("ferroce: note: {note}");
    }
    match task {
        Task::Run(experiment, document) => run_once(arguments, &document, &experiment),
        Task::Sweep(document, sweep, drawing) => run_sweep(arguments, &document, &sweep, &drawing),
    }
}

/// The name of the file, without its extension.
fn name_of(path: &Path) -> String {
    path.file_stem().map_or("sim".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Where the folder is, or will be.
fn folder_path(arguments: &Arguments) -> PathBuf {
    let default = || PathBuf::from(name_of(&arguments.file));
    arguments.out.clone().unwrap_or_else(default)
}

/// The folder, which is made before the simulation: nobody waits for one in vain.
fn folder(arguments: &Arguments) -> Result<Folder> {
    let path = folder_path(arguments);
    match Folder::create(&path, arguments.force) {
        Ok(folder) => Ok(folder),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!(
                "{} is there already: --force writes into it, --out names another",
                path.display()
            )
        }
        Err(error) => Err(error).context(format!("cannot make {}", path.display())),
    }
}

fn run_once(arguments: &Arguments, document: &Document, experiment: &Experiment) -> Result<()> {
    if arguments.check {
        return show_experiment(experiment).context("cannot write");
    }
    let folder = folder(arguments)?;
    let bar = bar(experiment.plan.until, "{bar:40} {percent:>3} %  {msg}  {eta} left");
    let begin = Instant::now();
    let flows = experiment.plan.flows.len();
    let outcome = ferroce_sim::run(&experiment.plan, &mut |progress| {
        bar.set_position(progress.at);
        bar.set_message(format!("{} of {flows} flows over", progress.flows_over));
    });
    bar.finish_and_clear();
    let outcome = outcome.with_context(|| arguments.file.display().to_string())?;
    let took = begin.elapsed();
    let set: Vec<String> = document.settings().iter().map(Setting::to_string).collect();
    let name = name_of(&arguments.file);
    let run = Run { name: &name, set: &set, experiment, outcome: &outcome };
    let written = run.write(&folder);
    let summary =
        written.with_context(|| format!("cannot write into {}", folder.path().display()))?;
    let mut out = io::stdout().lock();
    match arguments.json {
        true => write_json(&summary, &mut out),
        false => show_summary(&summary, &mut out),
    }
    .context("cannot write")?;
    for warning in warnings(&run, &summary) {
        eprintln!("warning: {warning}");
    }
    // Apart from the figures: these alone depend on the machine.
    let per_hop = took.as_secs_f64() * 1e6 / outcome.hops.max(1) as f64;
    eprintln!(
        "{}; {} hops of frames, {per_hop:.2} us of real time each; see {}",
        pace(outcome.ended, took.as_secs_f64()),
        outcome.hops,
        folder.path().display()
    );
    Ok(())
}

/// How long so many simulated nanoseconds took.
fn pace(simulated: u64, seconds: f64) -> String {
    let times = seconds * 1e9 / simulated.max(1) as f64;
    let (times, compared) = match times < 1.0 {
        true => (1.0 / times.max(f64::MIN_POSITIVE), "faster"),
        false => (times, "slower"),
    };
    format!(
        "{:.3} ms simulated in {seconds:.2} s, {times:.1} times {compared} than real time",
        simulated as f64 / 1e6
    )
}

/// On a terminal, a bar on stderr; elsewhere none.
fn bar(length: u64, template: &str) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("━╸ ")),
        Err(_) => bar,
    }
}

/// What a file says, in short.
fn show_experiment(experiment: &Experiment) -> io::Result<()> {
    let plan = &experiment.plan;
    let topology = &plan.topology;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} hosts, {} switches, {} links; {} flows; {} ms, a sample every {} us; seed {}",
        topology.hosts,
        topology.switches,
        topology.links.len(),
        plan.flows.len(),
        plan.until as f64 / 1e6,
        plan.sample_every as f64 / 1e3,
        plan.seed
    )?;
    show_switch("", &plan.switch, &mut out)?;
    // Switches that behave alike are told of together.
    let mut others: Vec<(&Switch, Vec<String>)> = Vec::new();
    for (&number, switch) in &plan.other_switches {
        let name = experiment.network.node(Node::Switch(number));
        match others.iter_mut().find(|(other, _)| *other == switch) {
            Some((_, names)) => names.push(name),
            None => others.push((switch, vec![name])),
        }
    }
    for (switch, names) in others {
        let names = names.join(", ");
        writeln!(out, "{names}: buffer {} B, alpha {}", switch.buffer, switch.alpha)?;
        show_switch("  ", switch, &mut out)?;
    }
    let device = &plan.host.device;
    match &device.congestion {
        None => writeln!(out, "congestion control: none")?,
        Some(config) => writeln!(out, "congestion control: {config}")?,
    }
    writeln!(out, "loss recovery: {}", device.loss_recovery.name())?;
    let (ports, is_terminal) = (experiment.network.ports(), io::stdout().is_terminal());
    let mut table = empty_table(["port", "Gbit/s", "delay us"], is_terminal);
    for (number, link) in topology.links.iter().enumerate() {
        table.add_row([
            ports[2 * number].clone(),
            (link.rate as f64 / 1e9).to_string(),
            (link.delay as f64 / 1e3).to_string(),
        ]);
    }
    write_table(&table, &mut out)
}

/// When a switch marks and pauses, in the class of most traffic.
fn show_switch(indent: &str, switch: &Switch, out: &mut impl Write) -> io::Result<()> {
    match switch.ecn.iter().flatten().next() {
        None => writeln!(out, "{indent}ECN: off")?,
        Some(Ecn { kmin, kmax, pmax }) => {
            writeln!(out, "{indent}ECN: kmin {kmin} B, kmax {kmax} B, pmax {pmax}")?;
        }
    }
    match switch.pfc.iter().flatten().next() {
        None => writeln!(out, "{indent}PFC: off"),
        Some(Pfc { xoff, xon, headroom }) => {
            writeln!(out, "{indent}PFC: xoff {xoff} B, xon {xon} B, headroom {headroom} B")
        }
    }
}

/// The figures of a run.
fn show_summary(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let titles = [
        "workload",
        "flows",
        "finished",
        "Gbit/s",
        "per flow",
        "Jain",
        "FCT p50 us",
        "p99",
        "slowdown p50",
        "p99",
        "resent",
    ];
    let mut table = empty_table(titles, io::stdout().is_terminal());
    let total = (summary.groups.len() > 1).then_some(&summary.all);
    for group in summary.groups.iter().chain(total) {
        table.add_row(group_row(group));
    }
    write_table(&table, out)?;
    let failed = match summary.all.failed {
        0 => String::new(),
        failed => format!("; {failed} flows failed (see flows.csv)"),
    };
    writeln!(
        out,
        "queues: at most {} B{}{}; {} marked, {} dropped, {} struck by faults{failed}",
        summary.queue.max_bytes,
        summary.queue.max_port.as_ref().map_or(String::new(), |port| format!(" ({port})")),
        summary.queue.mean_bytes.map_or(String::new(), |mean| format!(", on average {mean:.0} B")),
        summary.marked,
        summary.dropped,
        summary.struck,
    )?;
    writeln!(
        out,
        "PFC: {} pauses at {} ports, {:.1} us in all",
        summary.pfc.pauses, summary.pfc.ports, summary.pfc.paused_us
    )
}

/// A figure of times, and of what it is at least.
type Part = (fn(&Times) -> Option<f64>, fn(&Spread) -> f64);

fn group_row(group: &Group) -> [String; 11] {
    let number = |value: Option<f64>, decimals: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let goodput = group.flow_goodput_gbps.as_ref();
    // Where it lies among flows that had not finished, what it is at least.
    let time = |times: &Option<Times>, decimals: usize, part: Part| {
        let times = times.as_ref();
        let at_least = times.and_then(|times| times.at_least.as_ref()).map(part.1);
        match (times.and_then(part.0), at_least) {
            (None, Some(least)) => format!("> {least:.decimals$}"),
            (known, _) => number(known, decimals),
        }
    };
    let p50: Part = (|times| times.p50, |least| least.p50);
    let p99: Part = (|times| times.p99, |least| least.p99);
    [
        group.name.clone(),
        group.flows.to_string(),
        group.finished.to_string(),
        format!("{:.3}", group.goodput_gbps),
        number(goodput.map(|spread| spread.mean), 3),
        number(group.jain, 4),
        time(&group.fct_us, 1, p50),
        time(&group.fct_us, 1, p99),
        time(&group.slowdown, 2, p50),
        time(&group.slowdown, 2, p99),
        group.retransmitted.to_string(),
    ]
}

fn run_sweep(
    arguments: &Arguments,
    document: &Document,
    sweep: &Sweep,
    drawing: &Drawing,
) -> Result<()> {
    if arguments.check {
        return show_sweep(sweep, drawing).context("cannot write");
    }
    let width = document.plots_width()?;
    let folder = folder(arguments)?;
    let jobs = arguments.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let bar = bar(sweep.count() as u64, "{bar:40} {pos} of {len} runs  {eta} left");
    let begin = Instant::now();
    let simulated = Mutex::new(0_u64);
    let simulate = |experiment: &Experiment| -> Result<Outcome, SimError> {
        let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {})?;
        *simulated.lock().unwrap_or_else(|lock| lock.into_inner()) += outcome.ended;
        Ok(outcome)
    };
    let name = name_of(&arguments.file);
    let table = sweep.run(&name, document, jobs, simulate, || bar.inc(1));
    bar.finish_and_clear();
    let table = table?;
    let took = begin.elapsed().as_secs_f64();
    write_table_files(&table, &folder)?;
    draw(&table, drawing, width, &folder)?;
    let mut out = io::stdout().lock();
    match arguments.json {
        true => table.write_json(&mut out),
        false => show_rows(&table, &drawing.metrics, &mut out),
    }
    .context("cannot write")?;
    warn_of_rows(&table);
    let simulated = simulated.into_inner().unwrap_or_else(|lock| lock.into_inner());
    eprintln!(
        "{} runs, {}; see {}",
        table.rows.len(),
        pace(simulated, took),
        folder.path().display()
    );
    Ok(())
}

/// Writes the rows of a sweep.
fn write_table_files(table: &Table, folder: &Folder) -> Result<()> {
    let place = || format!("cannot write into {}", folder.path().display());
    folder.write("sweep.csv", |out| table.write_csv(out)).with_context(place)?;
    folder.write("sweep.json", |out| table.write_json(out)).with_context(place)
}

/// Draws the metrics of a sweep, if any key varies, and says where.
fn draw(table: &Table, drawing: &Drawing, width: u32, folder: &Folder) -> Result<Vec<PathBuf>> {
    if table.keys.is_empty() && drawing.against.is_none() {
        return Ok(Vec::new());
    }
    let draw = |metric: &String| {
        let chart = table.chart(Some(metric), drawing.against.as_deref());
        let svg = Chart { width, ..chart.map_err(anyhow::Error::msg)? }.svg();
        let name = drawing.file_name(metric);
        let place = || format!("cannot write into {}", folder.path().display());
        folder.write(&name, |out| out.write_all(svg.as_bytes())).with_context(place)?;
        Ok(folder.path().join(name))
    };
    drawing.metrics.iter().map(draw).collect()
}

/// Draws a sweep again from the `sweep.json` in its folder.
fn replot(arguments: &Arguments, document: &Document) -> Result<()> {
    let path = folder_path(arguments).join("sweep.json");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}; expected the folder of a sweep, by --out", path.display())
    })?;
    let wrong = |message: String| anyhow!("{}: {message}", path.display());
    let table = Table::from_json(&text).map_err(wrong)?;
    let request = Request {
        plot: arguments.plot.clone(),
        against: arguments.against.clone(),
        ..Request::default()
    };
    let drawing = request.drawing_of(document, &table)?;
    let width = document.plots_width()?;
    let drawn = draw(&table, &drawing, width, &Folder::open(&folder_path(arguments)))?;
    if drawn.is_empty() {
        bail!("{}: no key varies: nothing to draw against", path.display());
    }
    for plot in drawn {
        eprintln!("see {}", plot.display());
    }
    Ok(())
}

/// What a sweep would do. That each of its combinations is right is known already.
fn show_sweep(sweep: &Sweep, drawing: &Drawing) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let seeds: Vec<String> = sweep.seeds.iter().map(u64::to_string).collect();
    match &seeds[..] {
        [one] => writeln!(out, "{} runs, seed {one}", sweep.count())?,
        seeds => writeln!(out, "{} runs, seeds {}", sweep.count(), seeds.join(", "))?,
    }
    for (key, values) in &sweep.axes {
        writeln!(out, "{key}: {}", values.join(" | "))?;
    }
    let against = drawing.against.as_ref().map_or(String::new(), |key| format!(" against {key}"));
    writeln!(out, "shows {}{against}", drawing.metrics.join(", "))
}

/// What was set for a run.
fn set_of(table: &Table, row: &Row) -> String {
    let set = table.keys.iter().map(|key| format!("{key}={}", row.set[key]));
    set.collect::<Vec<_>>().join(", ")
}

/// Warns once of runs whose figures are to be read with care, by the first of them.
fn warn_of_rows(table: &Table) {
    let mut some = table.rows.iter().filter(|row| !row.warnings.is_empty());
    let Some(first) = some.next() else { return };
    let (count, of) = (1 + some.count(), table.rows.len());
    let set = set_of(table, first);
    let place = if set.is_empty() { String::new() } else { format!("{set}, ") };
    let warnings = first.warnings.join("; ");
    eprintln!("warning: {count} of {of} runs, first {place}seed {}: {warnings}", first.seed);
}

/// A line for each run: what was set, and the metrics that are drawn; how many flows finished, if
/// some had no time to.
fn show_rows(table: &Table, metrics: &[String], out: &mut impl Write) -> io::Result<()> {
    let count = |row: &Row, metric| row.known(metric).map_or(0.0, |(count, _)| count);
    let is_short = |row: &Row| count(row, "unfinished") + count(row, "failed") > 0.0;
    let finished = table.rows.iter().any(is_short).then_some("finished");
    let names = metrics.iter().map(String::as_str);
    let titles = ["set", "seed"].into_iter().chain(names).chain(finished);
    let mut shown = empty_table(titles, io::stdout().is_terminal());
    for row in &table.rows {
        let mut cells = vec![set_of(table, row), row.seed.to_string()];
        cells.extend(metrics.iter().map(|metric| match row.known(metric) {
            None => "-".to_owned(),
            Some((value, false)) => value.to_string(),
            Some((value, true)) => format!("> {value}"),
        }));
        let finished =
            finished.map(|_| format!("{} of {}", count(row, "finished"), count(row, "flows")));
        cells.extend(finished);
        shown.add_row(cells);
    }
    write_table(&shown, out)
}
