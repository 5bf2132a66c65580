//! The events of the demo as data, from which the narration and the JSON lines are rendered.

use std::fmt::Write as _;

use e2e_tools::{Origin, Tools};
use serde::Serialize;

use super::cost::Cost;
use super::stage::Stage;

/// An event of the demo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Report {
    /// A step begins.
    StepBegins(Heading),
    /// The step observed something.
    Fact(Fact),
    /// The step reached its goal.
    StepPassed { step: &'static str, millis: u64, vendor_calls: Cost },
    /// The step failed; no step follows.
    StepFailed { step: &'static str, millis: u64, why: String, evidence: Vec<Evidence> },
    /// The summary of all steps.
    Summary { steps: Vec<Row>, passed: bool },
    /// All steps are done; the cluster keeps running for the user.
    Stay(Stay),
    /// A process ended while the cluster keeps running; it will be restarted.
    ProcessEnded { process: &'static str, how: String, again_in_millis: u64 },
    /// The process was restarted.
    ProcessStarted(Running),
    /// The process could not be restarted; the demo retries it.
    ProcessNotStarted { process: &'static str, why: String, again_in_millis: u64 },
    /// The demo stops all processes.
    CleanUp,
}

/// The heading of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Heading {
    /// The number of the step, counted from 1.
    pub(super) number: usize,
    /// A short, constant name of the step.
    pub(super) step: &'static str,
    /// A sentence that describes the step.
    pub(super) title: String,
}

/// An observation of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub(super) enum Fact {
    /// A sentence about any other observation.
    Note { text: String },
    /// The command that a user would type for the same action.
    Command { line: String },
    /// A ready process of the release.
    Process { name: String, user: String },
    /// Initialised nodes.
    Nodes { nodes: Vec<NodeFact> },
    /// Routes in the cloud.
    Routes { routes: Vec<RouteFact> },
    /// A Service's load balancer in the cloud.
    Balancer(BalancerFact),
    /// Output of kubectl.
    Output { lines: Vec<String> },
}

/// A node after its initialisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NodeFact {
    pub(super) name: String,
    pub(super) provider_id: String,
    pub(super) zone: String,
    /// The addresses, such as `InternalIP 10.0.0.1`.
    pub(super) addresses: Vec<String>,
}

/// A pod network and the next hop to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RouteFact {
    pub(super) destination: String,
    pub(super) via: String,
}

/// A complete load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BalancerFact {
    pub(super) service: String,
    pub(super) id: String,
    pub(super) address: String,
    /// The listeners, such as `TCP 80`.
    pub(super) listeners: Vec<String>,
    /// The number of members of each listener.
    pub(super) members: usize,
}

/// A text that helps to find the cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Evidence {
    pub(super) of: String,
    pub(super) text: String,
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
    /// `cloudctl` with the URLs of the status pages, because without a kubelet it cannot forward ports to the pods.
    pub(super) cloudctl: String,
    pub(super) cloud: CloudAccess,
    /// The URL of Prometheus, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prometheus: Option<String>,
    pub(super) logs: String,
    /// The adapter and the controllers that run.
    pub(super) processes: Vec<Running>,
}

/// How users can access the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum CloudAccess {
    /// The URL of simcloud; its admin API is below `/admin`.
    Simcloud { url: String },
    /// The path of a clouds.yaml, and the name of the user's cloud in it.
    #[serde(rename = "openstack")]
    OpenStack { clouds: String, cloud: &'static str },
}

/// A running process, for users who want to kill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Running {
    /// The name of its Deployment, or of its program.
    pub(super) process: &'static str,
    pub(super) pid: u32,
}

impl Report {
    /// The report as one line of JSON.
    pub(super) fn json(&self) -> String {
        let mut line = String::new();
        match serde_json::to_string(self) {
            Ok(json) => line.push_str(&json),
            // The types of this module always serialise; if not, the error is printed.
            Err(error) => write!(line, "{{\"event\":\"error\",\"why\":\"{error}\"}}").unwrap_or_default(),
        }
        line.push('\n');
        line
    }
}

impl Fact {
    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }

    /// The number of calls of one operation.
    pub(super) fn calls(what: &str, cost: &Cost, operation: &str) -> Self {
        Self::note(format!("{what}: {operation} was called {}", times(cost.calls_of(operation))))
    }
}

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

impl Stay {
    pub(super) fn at(stage: &mut Stage, tools: &Tools) -> Self {
        let (processes, cloudctl) = (stage.running(), stage.cloudctl());
        let control_plane = &stage.cluster.control_plane;
        let kubectl = &tools.kubectl;
        Self {
            kubeconfig: control_plane.kubeconfig().display().to_string(),
            kubectl: (kubectl.origin != Origin::Path).then(|| kubectl.path.display().to_string()),
            cloudctl,
            cloud: stage.cluster.cloud.look(),
            prometheus: stage.prometheus.as_ref().map(|it| it.api.url().to_owned()),
            logs: control_plane.log_dir().display().to_string(),
            processes,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::ADAPTER;
    use crate::demo::cost::tests::some;

    fn stay() -> Stay {
        Stay {
            kubeconfig: "/tmp/x/admin.kubeconfig".to_owned(),
            kubectl: Some("/cache/kubectl".to_owned()),
            cloudctl: "/built/cloudctl --url cloud-adapter=http://192.0.2.2:20005".to_owned(),
            cloud: CloudAccess::Simcloud { url: "http://127.0.0.1:20003".to_owned() },
            prometheus: Some("http://127.0.0.1:20004".to_owned()),
            logs: "/tmp/x/logs".to_owned(),
            processes: vec![Running { process: ADAPTER, pid: 4711 }],
        }
    }

    /// One report of each kind, for tests of the output.
    pub(in super::super) fn play() -> Vec<Report> {
        let node = |n: u32| NodeFact {
            name: format!("node-{n}"),
            provider_id: format!("sim://sim-1/i-000{n}"),
            zone: "sim-1a".to_owned(),
            addresses: vec![format!("InternalIP 10.0.0.{n}"), format!("Hostname node-{n}")],
        };
        let balancer = BalancerFact {
            service: "web".to_owned(),
            id: "lb-0001".to_owned(),
            address: "203.0.113.1".to_owned(),
            listeners: vec!["TCP 80".to_owned(), "TCP 443".to_owned()],
            members: 3,
        };
        let heading =
            |number, step, title: &str| Report::StepBegins(Heading { number, step, title: title.to_owned() });
        let route = RouteFact { destination: "10.240.1.0/24".to_owned(), via: "i-0001".to_owned() };
        let row = |step, outcome| Row { step, outcome, millis: 1234, vendor_calls: some() };
        let failure = Report::StepFailed {
            step: "service",
            millis: 60_000,
            why: "condition not met within 60s: it is green".to_owned(),
            evidence: vec![Evidence { of: "log of a".to_owned(), text: "one\ntwo".to_owned() }],
        };
        vec![
            heading(1, "nodes", "nodes join at once"),
            Report::Fact(Fact::Command { line: "helm install it".to_owned() }),
            Report::Fact(Fact::Process {
                name: "a".to_owned(),
                user: "system:serviceaccount:k:a".to_owned(),
            }),
            Report::Fact(Fact::Nodes { nodes: (1..=9).map(node).collect() }),
            Report::Fact(Fact::Routes { routes: vec![route] }),
            Report::StepPassed { step: "nodes", millis: 1234, vendor_calls: some() },
            heading(2, "service", "a Service appears"),
            Report::Fact(Fact::Balancer(balancer)),
            Report::Fact(Fact::Output { lines: vec!["Events:".to_owned(), "  none".to_owned()] }),
            Report::Fact(Fact::note("done")),
            failure,
            Report::Summary {
                steps: vec![row("nodes", Outcome::Passed), row("service", Outcome::Failed)],
                passed: false,
            },
            Report::Stay(stay()),
            Report::ProcessEnded { process: ADAPTER, how: "signal 9".to_owned(), again_in_millis: 1000 },
            Report::ProcessNotStarted {
                process: ADAPTER,
                why: "program not found".to_owned(),
                again_in_millis: 2000,
            },
            Report::ProcessStarted(Running { process: ADAPTER, pid: 4712 }),
            Report::CleanUp,
        ]
    }

    #[test]
    fn each_report_is_one_json_line() {
        let nodes_are_many = |report: &Report| matches!(report, Report::Fact(Fact::Nodes { .. }));
        let lines: String = play().iter().filter(|it| !nodes_are_many(it)).map(Report::json).collect();
        assert_snapshot!(lines, @r#"
        {"event":"step_begins","number":1,"step":"nodes","title":"nodes join at once"}
        {"event":"fact","fact":"command","line":"helm install it"}
        {"event":"fact","fact":"process","name":"a","user":"system:serviceaccount:k:a"}
        {"event":"fact","fact":"routes","routes":[{"destination":"10.240.1.0/24","via":"i-0001"}]}
        {"event":"step_passed","step":"nodes","millis":1234,"vendor_calls":{"reads":1,"writes":2,"by_operation":{"ListInstances":1,"BatchRoutes":2}}}
        {"event":"step_begins","number":2,"step":"service","title":"a Service appears"}
        {"event":"fact","fact":"balancer","service":"web","id":"lb-0001","address":"203.0.113.1","listeners":["TCP 80","TCP 443"],"members":3}
        {"event":"fact","fact":"output","lines":["Events:","  none"]}
        {"event":"fact","fact":"note","text":"done"}
        {"event":"step_failed","step":"service","millis":60000,"why":"condition not met within 60s: it is green","evidence":[{"of":"log of a","text":"one\ntwo"}]}
        {"event":"summary","steps":[{"step":"nodes","outcome":"passed","millis":1234,"vendor_calls":{"reads":1,"writes":2,"by_operation":{"ListInstances":1,"BatchRoutes":2}}},{"step":"service","outcome":"failed","millis":1234,"vendor_calls":{"reads":1,"writes":2,"by_operation":{"ListInstances":1,"BatchRoutes":2}}}],"passed":false}
        {"event":"stay","kubeconfig":"/tmp/x/admin.kubeconfig","kubectl":"/cache/kubectl","cloudctl":"/built/cloudctl --url cloud-adapter=http://192.0.2.2:20005","cloud":{"is":"simcloud","url":"http://127.0.0.1:20003"},"prometheus":"http://127.0.0.1:20004","logs":"/tmp/x/logs","processes":[{"process":"cloud-adapter","pid":4711}]}
        {"event":"process_ended","process":"cloud-adapter","how":"signal 9","again_in_millis":1000}
        {"event":"process_not_started","process":"cloud-adapter","why":"program not found","again_in_millis":2000}
        {"event":"process_started","process":"cloud-adapter","pid":4712}
        {"event":"clean_up"}
        "#);
    }
}
