//! Flows from a CSV file.

use ferroce_stack::MAX_MESSAGE;

use super::{MAX_FLOW, MAX_FLOWS, Maker, two_hosts};
use crate::config::document::read_text;
use crate::config::error::Problem;
use crate::plan::Flow;

/// The columns a trace may have; the first four it must.
const COLUMNS: [&str; 6] = ["start_ns", "from", "to", "bytes", "messages", "dscp"];

impl Maker<'_> {
    /// One flow a line.
    pub(super) fn make_trace(&mut self) -> Result<(), Problem> {
        let Some(name) = &self.keys.file else {
            return Err(self.problem("file", "missing: expected the name of a CSV file"));
        };
        let path = self.folder.join(name);
        let verb = self.verb()?;
        let base = Flow {
            group: self.group.clone(),
            from: 0,
            to: 0,
            start: self.keys.start.unwrap_or_default().0,
            message: 0,
            messages: 1,
            is_endless: false,
            depth: 1,
            gap: 0,
            verb,
            dscp: self.dscp()?,
            qp: None,
        };
        let hosts = self.network.topology.hosts;
        let flows = read_text(&path).and_then(|text| parse(&text, &base, hosts));
        self.flows = flows
            .map_err(|reason| self.problem("file", format!("{}: {reason}", path.display())))?;
        self.share_qps();
        Ok(())
    }
}

/// The flows of a trace. `base` has what a line does not say.
fn parse(text: &str, base: &Flow, hosts: usize) -> Result<Vec<Flow>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, title) = lines.next().ok_or("empty")?;
    let columns: Vec<&str> = title.split(',').map(str::trim).collect();
    if let Some(unknown) = columns.iter().find(|column| !COLUMNS.contains(column)) {
        return Err(format!("column '{unknown}': expected {}", COLUMNS.join(", ")));
    }
    if let Some(missing) = COLUMNS[..4].iter().find(|column| !columns.contains(column)) {
        return Err(format!("column '{missing}' is missing in the first line"));
    }
    let mut flows = Vec::new();
    for (index, line) in lines {
        let flow = parse_line(line, &columns, base, hosts);
        flows.push(flow.map_err(|reason| format!("line {}: {reason}", index + 1))?);
        if flows.len() > MAX_FLOWS {
            return Err(format!("more than {MAX_FLOWS} flows"));
        }
    }
    Ok(flows)
}

fn parse_line(line: &str, columns: &[&str], base: &Flow, hosts: usize) -> Result<Flow, String> {
    let mut flow = base.clone();
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != columns.len() {
        return Err(format!("{} fields: expected {}", fields.len(), columns.len()));
    }
    for (column, field) in columns.iter().zip(fields) {
        let digits = match *column {
            "from" | "to" => field.strip_prefix('h').unwrap_or(field),
            _ => field,
        };
        let number: u64 = digits.parse().map_err(|_| wrong_field(column, field))?;
        match *column {
            "start_ns" => flow.start = base.start.saturating_add(number),
            "from" => flow.from = number as usize,
            "to" => flow.to = number as usize,
            "bytes" => flow.message = number,
            "messages" => flow.messages = number,
            _ => flow.dscp = u8::try_from(number).unwrap_or(u8::MAX),
        }
    }
    two_hosts(flow.from, flow.to, hosts)?;
    let most = MAX_FLOW / flow.message.max(1);
    match () {
        () if !(1..=MAX_MESSAGE).contains(&flow.message) => {
            Err(format!("bytes is {}: expected 1 to {MAX_MESSAGE}", flow.message))
        }
        () if !(1..=most).contains(&flow.messages) => {
            Err(format!("messages is {}: expected 1 to {most}", flow.messages))
        }
        () if flow.dscp > 63 => Err("dscp: expected 0 to 63".to_owned()),
        () => Ok(flow),
    }
}

/// What is wrong with a field that is no number.
fn wrong_field(column: &str, field: &str) -> String {
    match column {
        "from" | "to" => format!("{column} is '{field}': expected a host, such as h1 or 1"),
        _ => format!("{column} is '{field}': expected a whole number, not negative"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Verb;

    fn base() -> Flow {
        Flow {
            group: "t".to_owned(),
            from: 0,
            to: 0,
            start: 10,
            message: 0,
            messages: 1,
            is_endless: false,
            depth: 1,
            gap: 0,
            verb: Verb::Write,
            dscp: 26,
            qp: None,
        }
    }

    #[test]
    fn columns_may_stand_in_any_order() {
        let text = "from,to,bytes,start_ns,messages\nh1,0,100,5,2\n\n0,1,7,0,1\n";
        let flows = parse(text, &base(), 2).unwrap();
        assert_eq!(flows.len(), 2);
        let Flow { from, to, start, message, messages, .. } = flows[0];
        assert_eq!((from, to, start, message, messages), (1, 0, 15, 100, 2));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = |lines: &str| {
            parse(&format!("start_ns,from,to,bytes\n{lines}"), &base(), 2).unwrap_err()
        };
        assert_eq!(error("0,0,1,9\n0,0,1\n"), "line 3: 3 fields: expected 4");
        assert_eq!(error("0,0,x,9\n"), "line 2: to is 'x': expected a host, such as h1 or 1");
        assert_eq!(
            error("-1,0,1,9\n"),
            "line 2: start_ns is '-1': expected a whole number, not negative"
        );
        assert_eq!(error("0,1,1,9\n"), "line 2: h1 to itself: expected two different hosts");
        assert_eq!(error("0,h1,h2,9\n"), "line 2: no host h2: expected h0 to h1");
        assert_eq!(error("0,0,1,0\n"), "line 2: bytes is 0: expected 1 to 2147483648");
        assert!(parse("start_ns,from,to\n", &base(), 2).unwrap_err().contains("'bytes'"));
    }
}
