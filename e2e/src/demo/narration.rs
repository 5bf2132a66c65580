//! Renders reports as text. Pure functions.

use crate::ADAPTER;

use super::cost::Cost;
use super::report::{
    BalancerFact, CloudAccess, Evidence, Fact, Heading, NodeFact, Outcome, Report, RouteFact, Row, Running,
    Stay,
};

/// The maximum number of similar items shown.
const SHOWN: usize = 5;

/// Colours of the text, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Ansi,
}

/// Renders reports as text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narration {
    paint: Paint,
}

/// The ANSI codes of the colours.
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";

impl Narration {
    pub(super) const fn new(paint: Paint) -> Self {
        Self { paint }
    }

    /// Returns complete lines.
    pub(super) fn text(&self, report: &Report) -> String {
        match report {
            Report::StepBegins(Heading { number, step, title }) => {
                format!("\n{}  {title}\n", self.in_style(BOLD, &format!("{number:>2} {step}")))
            }
            Report::Fact(fact) => indented(&self.fact(fact)),
            Report::StepPassed { millis, vendor_calls, .. } => {
                let ok = self.in_style(GREEN, "ok");
                indented(&format!("{ok}  {}, {vendor_calls}", seconds(*millis)))
            }
            Report::StepFailed { millis, why, evidence, .. } => self.failure(*millis, why, evidence),
            Report::Summary { steps, passed } => self.summary(steps, *passed),
            Report::Stay(stay) => self.stay(stay),
            Report::ProcessEnded { process, how, again_in_millis } => {
                format!("\n{process} ended ({how}); it will be restarted after {}\n", whole(*again_in_millis))
            }
            Report::ProcessStarted(Running { process, pid }) => {
                format!("{process} was restarted as process {pid}\n")
            }
            Report::ProcessNotStarted { process, why, again_in_millis } => {
                format!("cannot restart {process}: {why}; retrying after {}\n", whole(*again_in_millis))
            }
            Report::CleanUp => "\nCleaning up. Press Ctrl-C again to kill everything at once.\n".to_owned(),
        }
    }

    fn fact(&self, fact: &Fact) -> String {
        match fact {
            Fact::Note { text } => text.clone(),
            Fact::Command { line } => self.in_style(DIM, &format!("$ {line}")),
            Fact::Process { name, user } => format!("{name:<19} ready, as {user}"),
            Fact::Nodes { nodes } => few(nodes, "nodes", node),
            Fact::Routes { routes } => few(routes, "routes", route),
            Fact::Balancer(fact) => balancer(fact),
            Fact::Output { lines } => self.in_style(DIM, &lines.join("\n")),
        }
    }

    fn failure(&self, millis: u64, why: &str, evidence: &[Evidence]) -> String {
        let failed = self.in_style(RED, "FAILED");
        let mut text = indented(&format!("{failed} after {}: {why}", seconds(millis)));
        for Evidence { of, text: shown } in evidence {
            text += &indented(&format!("-- {of}:"));
            text += &indented(if shown.is_empty() { "(nothing)" } else { shown });
        }
        text
    }

    fn summary(&self, steps: &[Row], passed: bool) -> String {
        let mut text = format!("\n{}\n", self.in_style(BOLD, "Summary"));
        text += &format!("    {:<15} {:>8} {:>7} {:>7}\n", "step", "time", "reads", "writes");
        for Row { step, outcome, millis, vendor_calls } in steps {
            let word = match outcome {
                Outcome::Passed => self.in_style(GREEN, "ok"),
                Outcome::Failed => self.in_style(RED, "FAILED"),
            };
            let time = seconds(*millis);
            let Cost { reads, writes, .. } = vendor_calls;
            text += &format!("    {step:<15} {time:>8} {reads:>7} {writes:>7}  {word}\n");
        }
        text += &format!("\n{}\n", self.in_style(BOLD, "Vendor calls"));
        for Row { step, vendor_calls, .. } in steps.iter().filter(|row| row.vendor_calls.calls() > 0) {
            text += &format!("    {step:<15} {}\n", vendor_calls.each());
        }
        text += if passed {
            "\nAll steps passed.\n"
        } else {
            "\nA step failed; the remaining steps were skipped.\n"
        };
        text
    }

    fn stay(&self, stay: &Stay) -> String {
        let Stay { kubeconfig, kubectl, cloudctl, cloud, prometheus, logs, processes } = stay;
        let alias = kubectl.as_ref().map(|path| format!("  alias kubectl={path}\n")).unwrap_or_default();
        let harm = processes.iter().find(|it| it.process == ADAPTER).map(kill).unwrap_or_default();
        let head =
            self.in_style(BOLD, "The cluster keeps running until you press Ctrl-C. In another terminal:");
        format!(
            "\n{head}\n\n  export KUBECONFIG={kubeconfig}\n{alias}  alias cloudctl='{cloudctl}'\n\n\
             To try:\n\n\
             \x20 kubectl get nodes --output wide\n\
             \x20 kubectl create service loadbalancer mine --tcp=80:8080\n\
             \x20 kubectl get service mine --watch\n\
             \x20 kubectl describe service mine\n\
             \x20 cloudctl explain service mine\n\
             \x20 kubectl delete service mine\n\
             \x20 cloudctl status\n\n\
             `kubectl get deployments` shows 0/1, because there is no kubelet: the processes run outside the cluster.\n\n\
             {harm}\
             {}{}\
             The logs of all processes are in {logs}\n",
            look(cloud),
            prometheus.as_deref().map(queries).unwrap_or_default(),
        )
    }

    fn in_style(&self, code: &str, text: &str) -> String {
        match self.paint {
            Paint::Plain => text.to_owned(),
            // Each line has its own codes, so that the indentation is not coloured.
            Paint::Ansi => {
                let lines: Vec<_> = text.lines().map(|line| format!("\x1b[{code}m{line}\x1b[0m")).collect();
                lines.join("\n")
            }
        }
    }
}

/// Explains how to observe a Service while the adapter does not run.
fn kill(adapter: &Running) -> String {
    let Running { process, pid } = adapter;
    format!(
        "{process} is process {pid}. To see the Events of a Service while it does not run, kill it; it will be restarted soon:\n\n\
         \x20 kill -9 {pid}; kubectl create service loadbalancer other --tcp=80:8080\n\
         \x20 kubectl describe service other\n\n"
    )
}

/// Explains how to access the cloud.
fn look(cloud: &CloudAccess) -> String {
    match cloud {
        CloudAccess::Simcloud { url } => format!(
            "The simulated cloud is at {url}. To see its state and to inject a fault:\n\n\
             \x20 curl {url}/admin/state\n\
             \x20 curl {url}/admin/counts\n\
             \x20 curl -X POST {url}/admin/faults -d '{{\"match\": {{\"operation\": \"CreateLoadBalancer\"}}, \
             \"when\": {{\"next\": 1}}, \"action\": {{\"respond\": {{\"status\": 503}}}}}}'\n\n"
        ),
        CloudAccess::OpenStack { clouds, cloud } => format!(
            "To access the OpenStack project (the client is in venv/bin of the home of `cargo xtask openstack`):\n\n\
             \x20 export OS_CLIENT_CONFIG_FILE={clouds} OS_CLOUD={cloud}\n\
             \x20 openstack server list\n\
             \x20 openstack loadbalancer list\n\n"
        ),
    }
}

/// Explains how to query Prometheus.
fn queries(prometheus: &str) -> String {
    format!(
        "Prometheus is at {prometheus}. To query it, and to see the state of the alerts:\n\n\
         \x20 curl --silent {prometheus}/api/v1/query --data-urlencode 'query=sum by (op) (cloud_adapter_vendor_calls_total)'\n\
         \x20 curl --silent {prometheus}/api/v1/rules\n\n"
    )
}

fn node(node: &NodeFact) -> String {
    let NodeFact { name, provider_id, zone, addresses } = node;
    format!("{name:<9} {provider_id}  zone {zone}  {}", addresses.join(", "))
}

fn route(route: &RouteFact) -> String {
    format!("{:<16} via {}", route.destination, route.via)
}

fn balancer(balancer: &BalancerFact) -> String {
    let BalancerFact { service, id, address, listeners, members } = balancer;
    let listeners = listeners.join(", ");
    format!("Service {service}: {address}, {id} with {listeners}, {members} members each")
}

/// Shows the first items, and the number of the other items.
fn few<T>(all: &[T], what: &str, line: impl Fn(&T) -> String) -> String {
    let mut lines: Vec<_> = all.iter().take(SHOWN).map(line).collect();
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        lines.push(format!("... and {more} more {what}"));
    }
    lines.join("\n")
}

/// Formats a time: `1.23 s`.
fn seconds(millis: u64) -> String {
    format!("{}.{:02} s", millis / 1000, millis % 1000 / 10)
}

/// Formats a pause: `1 s`.
fn whole(millis: u64) -> String {
    format!("{} s", millis.div_ceil(1000))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::super::report::tests::play;
    use super::{Narration, Paint};

    #[test]
    fn narration_of_all_reports() {
        let narration = Narration::new(Paint::Plain);
        let story: String = play().iter().map(|report| narration.text(report)).collect();
        assert_snapshot!(story.trim(), @r#"
        1 nodes  nodes join at once
            $ helm install it
            a                   ready, as system:serviceaccount:k:a
            node-1    sim://sim-1/i-0001  zone sim-1a  InternalIP 10.0.0.1, Hostname node-1
            node-2    sim://sim-1/i-0002  zone sim-1a  InternalIP 10.0.0.2, Hostname node-2
            node-3    sim://sim-1/i-0003  zone sim-1a  InternalIP 10.0.0.3, Hostname node-3
            node-4    sim://sim-1/i-0004  zone sim-1a  InternalIP 10.0.0.4, Hostname node-4
            node-5    sim://sim-1/i-0005  zone sim-1a  InternalIP 10.0.0.5, Hostname node-5
            ... and 4 more nodes
            10.240.1.0/24    via i-0001
            ok  1.23 s, 3 vendor calls: 1 read, 2 writes (ListInstances 1, BatchRoutes 2)

         2 service  a Service appears
            Service web: 203.0.113.1, lb-0001 with TCP 80, TCP 443, 3 members each
            Events:
              none
            done
            FAILED after 60.00 s: condition not met within 60s: it is green
            -- log of a:
            one
            two

        Summary
            step                time   reads  writes
            nodes             1.23 s       1       2  ok
            service           1.23 s       1       2  FAILED

        Vendor calls
            nodes           ListInstances 1, BatchRoutes 2
            service         ListInstances 1, BatchRoutes 2

        A step failed; the remaining steps were skipped.

        The cluster keeps running until you press Ctrl-C. In another terminal:

          export KUBECONFIG=/tmp/x/admin.kubeconfig
          alias kubectl=/cache/kubectl
          alias cloudctl='/built/cloudctl --url cloud-adapter=http://192.0.2.2:20005'

        To try:

          kubectl get nodes --output wide
          kubectl create service loadbalancer mine --tcp=80:8080
          kubectl get service mine --watch
          kubectl describe service mine
          cloudctl explain service mine
          kubectl delete service mine
          cloudctl status

        `kubectl get deployments` shows 0/1, because there is no kubelet: the processes run outside the cluster.

        cloud-adapter is process 4711. To see the Events of a Service while it does not run, kill it; it will be restarted soon:

          kill -9 4711; kubectl create service loadbalancer other --tcp=80:8080
          kubectl describe service other

        The simulated cloud is at http://127.0.0.1:20003. To see its state and to inject a fault:

          curl http://127.0.0.1:20003/admin/state
          curl http://127.0.0.1:20003/admin/counts
          curl -X POST http://127.0.0.1:20003/admin/faults -d '{"match": {"operation": "CreateLoadBalancer"}, "when": {"next": 1}, "action": {"respond": {"status": 503}}}'

        Prometheus is at http://127.0.0.1:20004. To query it, and to see the state of the alerts:

          curl --silent http://127.0.0.1:20004/api/v1/query --data-urlencode 'query=sum by (op) (cloud_adapter_vendor_calls_total)'
          curl --silent http://127.0.0.1:20004/api/v1/rules

        The logs of all processes are in /tmp/x/logs

        cloud-adapter ended (signal 9); it will be restarted after 1 s
        cannot restart cloud-adapter: program not found; retrying after 2 s
        cloud-adapter was restarted as process 4712

        Cleaning up. Press Ctrl-C again to kill everything at once.
        "#);
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let (plain, ansi) = (Narration::new(Paint::Plain), Narration::new(Paint::Ansi));
        let painted: String = play().iter().map(|report| ansi.text(report)).collect();
        let bare = ["1", "2", "31", "32", "0"]
            .iter()
            .fold(painted.clone(), |text, code| text.replace(&format!("\x1b[{code}m"), ""));
        assert_eq!(bare, play().iter().map(|report| plain.text(report)).collect::<String>());
        assert!(painted.contains("\x1b[31mFAILED\x1b[0m"));
    }
}
