//! The events of the demo as data, and their rendering as text or as JSON lines.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

use crate::ADAPTER;

use super::cost::Cost;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default();
const GREEN: Style = AnsiColor::Green.on_default();

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Report {
    /// A step begins. `number` counts from 1; `step` is a short, constant name.
    StepBegins {
        number: usize,
        step: &'static str,
        title: String,
    },
    /// The step observed something.
    Note {
        text: String,
    },
    /// The command that a user would type for the same action.
    Command {
        line: String,
    },
    StepPassed(Row),
    /// The step failed; no step follows.
    StepFailed {
        step: &'static str,
        millis: u64,
        why: String,
    },
    Summary {
        steps: Vec<Row>,
        passed: bool,
    },
    /// All steps are done; the cluster keeps running for the user.
    Stay(Stay),
    /// A process ended while the cluster keeps running; it will be restarted.
    ProcessEnded {
        process: &'static str,
        how: String,
        again_in_millis: u64,
    },
    ProcessStarted(Running),
    /// The process could not be restarted; the demo retries it.
    ProcessNotStarted {
        process: &'static str,
        why: String,
        again_in_millis: u64,
    },
    /// The demo stops all processes.
    CleanUp,
}

/// A step in the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) step: &'static str,
    pub(super) outcome: Outcome,
    pub(super) millis: u64,
    pub(super) vendor_calls: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Passed,
    Failed,
}

/// How the user can access the running cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stay {
    pub(super) kubeconfig: String,
    /// The path of kubectl, if it is not in `PATH`.
    pub(super) kubectl: Option<String>,
    /// The command line of `cloudctl` with the URLs of the status pages. Without a kubelet, `cloudctl` cannot forward ports to the pods.
    pub(super) cloudctl: String,
    /// Explains how to access the cloud.
    pub(super) cloud: String,
    /// The URL of Prometheus, if it runs.
    pub(super) prometheus: Option<String>,
    pub(super) logs: String,
    pub(super) processes: Vec<Running>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Running {
    /// The name of the process's Deployment, or of its program.
    pub(super) process: &'static str,
    pub(super) pid: u32,
}

/// Prints reports to standard output, without a buffer: as text, or as one JSON object per line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    pub(super) fn print(self, report: &Report) {
        let text = if self.json {
            serde_json::to_string(report).unwrap_or_else(|error| error.to_string()) + "\n"
        } else {
            report.text()
        };
        // `anstream` removes the colours if standard output is no terminal, or if NO_COLOR is set. Writing fails if standard output is
        // closed; the exit code still reports the result.
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }

    pub(super) fn note(self, text: impl Into<String>) {
        self.print(&Report::Note { text: text.into() });
    }

    pub(super) fn command(self, line: &str) {
        self.print(&Report::Command { line: line.to_owned() });
    }
}

impl Report {
    /// Complete, coloured lines.
    fn text(&self) -> String {
        match self {
            Self::StepBegins { number, step, title } => {
                format!("\n{BOLD}{number:>2} {step}{BOLD:#}  {title}\n")
            }
            Self::Note { text } => indented(text),
            Self::Command { line } => format!("    {DIM}$ {line}{DIM:#}\n"),
            Self::StepPassed(Row { millis, vendor_calls, .. }) => {
                format!("    {GREEN}ok{GREEN:#}  {}, {vendor_calls}\n", seconds(*millis))
            }
            Self::StepFailed { millis, why, .. } => {
                format!("    {RED}FAILED{RED:#} after {}:\n{}", seconds(*millis), indented(why))
            }
            Self::Summary { steps, passed } => summary(steps, *passed),
            Self::Stay(stay) => stay.text(),
            Self::ProcessEnded { process, how, again_in_millis } => {
                format!(
                    "\n{process} ended ({how}); it will be restarted after {}\n",
                    seconds(*again_in_millis)
                )
            }
            Self::ProcessStarted(Running { process, pid }) => {
                format!("{process} was restarted as process {pid}\n")
            }
            Self::ProcessNotStarted { process, why, again_in_millis } => {
                format!("cannot restart {process}: {why}; retrying after {}\n", seconds(*again_in_millis))
            }
            Self::CleanUp => "\nCleaning up. Press Ctrl-C again to kill everything at once.\n".to_owned(),
        }
    }
}

impl Stay {
    fn text(&self) -> String {
        let Self { kubeconfig, kubectl, cloudctl, cloud, prometheus, logs, processes } = self;
        let alias = kubectl.as_ref().map(|path| format!("  alias kubectl={path}\n")).unwrap_or_default();
        let adapter =
            processes.iter().find(|it| it.process == ADAPTER).map(Running::kill).unwrap_or_default();
        let prometheus = prometheus.as_ref().map(|url| format!(
            "Prometheus is at {url}. To query it, and to see the state of the alerts:\n\n\
             \x20 curl --silent {url}/api/v1/query --data-urlencode 'query=sum by (op) (cloud_adapter_vendor_calls_total)'\n\
             \x20 curl --silent {url}/api/v1/rules\n\n"
        ));
        format!(
            "\n{BOLD}The cluster keeps running until you press Ctrl-C. In another terminal:{BOLD:#}\n\n\
             \x20 export KUBECONFIG={kubeconfig}\n{alias}  alias cloudctl='{cloudctl}'\n\n\
             To try:\n\n\
             \x20 kubectl get nodes --output wide\n\
             \x20 kubectl create service loadbalancer mine --tcp=80:8080\n\
             \x20 kubectl describe service mine\n\
             \x20 cloudctl explain service mine\n\
             \x20 kubectl delete service mine\n\
             \x20 cloudctl status\n\n\
             `kubectl get deployments` shows 0/1, because there is no kubelet: the processes run outside the cluster.\n\n\
             {adapter}{cloud}\n{}The logs of all processes are in {logs}\n",
            prometheus.unwrap_or_default(),
        )
    }
}

impl Running {
    /// Explains how to kill the process, and how to observe a Service until the process is restarted.
    fn kill(&self) -> String {
        let Self { process, pid } = self;
        format!(
            "{process} is process {pid}. To see the Events of a Service while it does not run, kill it; it will be restarted soon:\n\n\
             \x20 kill -9 {pid}; kubectl create service loadbalancer other --tcp=80:8080\n\
             \x20 kubectl describe service other\n\n"
        )
    }
}

fn summary(steps: &[Row], passed: bool) -> String {
    let mut text =
        format!("\n{BOLD}    {:<15} {:>8} {:>7} {:>7}{BOLD:#}\n", "step", "time", "reads", "writes");
    for Row { step, outcome, millis, vendor_calls: Cost { reads, writes, .. } } in steps {
        let outcome = match outcome {
            Outcome::Passed => format!("{GREEN}ok{GREEN:#}"),
            Outcome::Failed => format!("{RED}FAILED{RED:#}"),
        };
        // Writing to a String cannot fail.
        writeln!(text, "    {step:<15} {:>8} {reads:>7} {writes:>7}  {outcome}", seconds(*millis))
            .unwrap_or_default();
    }
    text +=
        if passed { "\nAll steps passed.\n" } else { "\nA step failed; the remaining steps were skipped.\n" };
    text
}

/// Formats a time: `1.23 s`.
fn seconds(millis: u64) -> String {
    format!("{}.{:02} s", millis / 1000, millis % 1000 / 10)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// Examples of each kind of report that has its own text.
    fn reports() -> Vec<Report> {
        let vendor_calls =
            Cost { reads: 1, writes: 2, by_operation: [("ListInstances".to_owned(), 3)].into() };
        let row = |step, outcome| Row { step, outcome, millis: 1234, vendor_calls: vendor_calls.clone() };
        let why = "condition not met within 60s: it is green\nlog of a:".to_owned();
        vec![
            Report::StepBegins { number: 1, step: "nodes", title: "nodes join at once".to_owned() },
            Report::Command { line: "helm install it".to_owned() },
            Report::Note { text: "done".to_owned() },
            Report::StepPassed(row("nodes", Outcome::Passed)),
            Report::StepFailed { step: "service", millis: 60_000, why },
            Report::Summary {
                steps: vec![row("nodes", Outcome::Passed), row("service", Outcome::Failed)],
                passed: false,
            },
            Report::ProcessEnded { process: ADAPTER, how: "signal 9".to_owned(), again_in_millis: 1000 },
            Report::ProcessStarted(Running { process: ADAPTER, pid: 4712 }),
        ]
    }

    #[test]
    fn reports_as_text() {
        let text: String = reports().iter().map(Report::text).collect();
        assert!(text.contains("\x1b[31mFAILED\x1b[0m"), "{text}");
        assert_snapshot!(anstream::adapter::strip_str(&text).to_string().trim(), @r"
        1 nodes  nodes join at once
            $ helm install it
            done
            ok  1.23 s, vendor reads 1, writes 2 (ListInstances 3)
            FAILED after 60.00 s:
            condition not met within 60s: it is green
            log of a:

            step                time   reads  writes
            nodes             1.23 s       1       2  ok
            service           1.23 s       1       2  FAILED

        A step failed; the remaining steps were skipped.

        cloud-adapter ended (signal 9); it will be restarted after 1.00 s
        cloud-adapter was restarted as process 4712
        ");
    }
}
