//! Why a pod does not run, according to its status.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};

/// Maximum length of a message that is shown, in characters.
const SHOWN: usize = 160;
/// The reasons of containers that were not started yet. They have no message.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reasons of containers whose image cannot be pulled. Their messages end with the cause.
const PULLING: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"];
/// Number of characters that are shown of the start and of the end of a message that ends with the cause.
const ENDS: (usize, usize) = (40, 120);

/// Why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// The reason, such as `ImagePullBackOff`, and its message.
    pub(crate) text: String,
    /// What the user should do.
    pub(crate) hint: Cow<'static, str>,
}

impl Stopped {
    /// Whether the status says only that the containers were not started yet.
    pub(crate) fn is_starting(&self) -> bool {
        STARTING.contains(&self.text.as_str())
    }
}

/// Returns why a pod does not run, or `None` if its status does not say so.
pub(crate) fn stopped(pod: &Pod) -> Option<Stopped> {
    let status = pod.status.as_ref()?;
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let containers = || containers.into_iter().flatten().flatten();
    let (starting, failing): (Vec<Stopped>, Vec<Stopped>) =
        containers().filter_map(of_container).partition(Stopped::is_starting);
    failing.into_iter().next().or_else(|| of_pod(status)).or_else(|| starting.into_iter().next())
}

fn of_pod(status: &PodStatus) -> Option<Stopped> {
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let (reason, message) = match unscheduled {
        Some(it) => (it.reason.as_deref(), it.message.as_deref()),
        None => (status.reason.as_deref(), status.message.as_deref()),
    };
    Some(of_reason(reason?, &first_line(message)))
}

fn of_container(status: &ContainerStatus) -> Option<Stopped> {
    let state = status.state.as_ref()?;
    if let Some(ended) = &state.terminated {
        return (ended.exit_code != 0).then(|| of_reason("Terminated", &exit(ended)));
    }
    let waiting = state.waiting.as_ref()?;
    let last = |state: &ContainerState| state.terminated.as_ref().map(exit);
    let crashed = status.last_state.as_ref().and_then(last);
    let reason = waiting.reason.as_deref()?;
    let text = match crashed.filter(|_| reason == "CrashLoopBackOff") {
        Some(text) => text,
        None if PULLING.contains(&reason) => with_end(waiting.message.as_deref().unwrap_or_default()),
        None => first_line(waiting.message.as_deref()),
    };
    Some(of_reason(reason, &text))
}

/// The message of a container that ended is the end of its log, because the chart sets `terminationMessagePolicy`.
fn exit(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let said = cause(ended.message.as_deref().unwrap_or_default())
        .map(|it| format!(": {}", cut(&of_log(it))))
        .unwrap_or_default();
    format!("exit code {}{reason}{said}", ended.exit_code)
}

/// Returns the line of a log that has the cause: the last one, unless a message about flags ends with advice.
fn cause(log: &str) -> Option<&str> {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_json = |line: &str| line.starts_with('{');
    let begins = |line: &&str| line.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("error:"));
    // Earlier lines in JSON may have errors that the program survived.
    let mentions = |line: &&str| !is_json(line) && line.to_ascii_lowercase().contains("error");
    let last = lines().next_back();
    lines().find(begins).or_else(|| last.filter(|it| is_json(it))).or_else(|| lines().find(mentions)).or(last)
}

/// Returns the error in a line of a log, which may be in JSON.
fn of_log(line: &str) -> String {
    let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { return line.to_owned() };
    let text = |key| line.get(key).and_then(serde_json::Value::as_str).filter(|it| !it.is_empty());
    text("error").or_else(|| text("message")).map_or_else(|| line.to_string(), str::to_owned)
}

fn of_reason(reason: &str, text: &str) -> Stopped {
    let text = if text.is_empty() { reason.to_owned() } else { format!("{reason}: {text}") };
    Stopped { text, hint: hint(reason).into() }
}

fn hint(reason: &str) -> &'static str {
    match reason {
        "InvalidImageName" => {
            "set image.registry (or adapter.image) without https://, such as image.registry: ghcr.io/acme"
        }
        it if PULLING.contains(&it) => {
            "check image.registry and image.tag, and set imagePullSecrets if the registry needs credentials"
        }
        "ErrImageNeverPull" => "load the image on the node, or set image.pullPolicy to IfNotPresent",
        "CreateContainerConfigError" => "create the Secret or ConfigMap that the message names",
        "CrashLoopBackOff" | "Terminated" => "see kubectl logs --previous",
        "Unschedulable" => "add a node, or change nodeSelector, tolerations or resources in the values",
        _ => "see the Events in kubectl describe pod",
    }
}

fn first_line(message: Option<&str>) -> String {
    cut(message.unwrap_or_default().lines().next().unwrap_or_default())
}

/// Shortens the first line of a message, and keeps its end.
pub(crate) fn with_end(message: &str) -> String {
    let line: Vec<char> = message.lines().next().unwrap_or_default().trim().chars().collect();
    if line.len() <= SHOWN {
        return line.into_iter().collect();
    }
    let (start, end) = ENDS;
    let start = line.iter().take(start).collect::<String>();
    let end = line.iter().skip(line.len().saturating_sub(end)).collect::<String>();
    format!("{}...{}", start.trim_end(), end.trim_start())
}

/// Shortens a text to the length that is shown.
pub(crate) fn cut(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn why(status: &Value) -> Option<(String, Cow<'static, str>)> {
        let pod =
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": status })).expect("a pod");
        stopped(&pod).map(|it| (it.text, it.hint))
    }

    fn container(state: &Value, last: &Value) -> Value {
        json!({ "name": "it", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": last })
    }

    fn waiting(reason: &str, message: &str) -> Value {
        container(&json!({ "waiting": { "reason": reason, "message": message } }), &json!({}))
    }

    #[test]
    fn a_waiting_container_has_a_reason_and_a_hint() {
        for (reason, message, text, hint) in [
            (
                "InvalidImageName",
                "couldn't parse\nmore",
                "InvalidImageName: couldn't parse",
                "image.registry: ghcr.io/acme",
            ),
            ("ImagePullBackOff", "Back-off", "ImagePullBackOff: Back-off", "imagePullSecrets"),
            ("ErrImagePull", "401", "ErrImagePull: 401", "imagePullSecrets"),
            ("ErrImageNeverPull", "absent", "ErrImageNeverPull: absent", "image.pullPolicy"),
            (
                "CreateContainerConfigError",
                "secret \"a\" not found",
                "CreateContainerConfigError: secret \"a\" not found",
                "create the Secret",
            ),
            ("ContainerCreating", "", "ContainerCreating", "kubectl describe pod"),
        ] {
            let (found, advice) =
                why(&json!({ "containerStatuses": [waiting(reason, message)] })).expect(reason);
            assert_eq!(found, text);
            assert!(advice.contains(hint), "{reason}: {advice}");
        }
        let long = why(&json!({ "containerStatuses": [waiting("ErrImagePull", &"ä".repeat(300))] }))
            .expect("a reason");
        assert_eq!(long.0, format!("ErrImagePull: {}...{}", "ä".repeat(40), "ä".repeat(120)));
        let of_secret =
            json!({ "containerStatuses": [waiting("CreateContainerConfigError", &"ä".repeat(300))] });
        let text = why(&of_secret).expect("a reason").0;
        assert_eq!(text, format!("CreateContainerConfigError: {}...", "ä".repeat(160)));
    }

    #[test]
    fn the_cause_at_the_end_of_a_long_message_about_an_image_is_shown() {
        let message = "Back-off pulling image \"registry.example/team/node-controller:1.2\": ErrImagePull: rpc error: \
            code = NotFound desc = failed to pull and unpack image: failed to resolve image: \
            registry.example/team/node-controller:1.2: not found";
        let text = why(&json!({ "containerStatuses": [waiting("ImagePullBackOff", message)] }));
        let text = text.expect("a reason").0;
        assert!(text.starts_with("ImagePullBackOff: Back-off pulling image \"registry.example"), "{text}");
        assert!(text.ends_with("node-controller:1.2: not found") && text.chars().count() <= 181, "{text}");
    }

    #[test]
    fn a_crash_is_shown_with_its_exit_code_and_last_line() {
        let last = json!({ "terminated": { "exitCode": 2, "reason": "Error", "message": "starting\ninvalid --x\n\n" } });
        let state = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m0s" } });
        let crashed = json!({ "containerStatuses": [container(&state, &last)] });
        let text = |status| why(&status).map(|it| it.0);
        assert_eq!(text(crashed).as_deref(), Some("CrashLoopBackOff: exit code 2 (Error): invalid --x"));
        let ended =
            container(&json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } }), &json!({}));
        let ended = json!({ "containerStatuses": [ended] });
        assert_eq!(text(ended).as_deref(), Some("Terminated: exit code 137 (OOMKilled)"));
        let line = json!({ "level": "ERROR", "message": "Exiting with an error", "error": "cannot bind" });
        assert_eq!((of_log(&line.to_string()).as_str(), of_log("[1]").as_str()), ("cannot bind", "[1]"));
    }

    #[test]
    fn the_line_with_the_cause_of_a_crash_is_chosen() {
        for (log, line) in [
            (
                "error: unexpected argument '--x' found\n\nUsage: it\n\nFor more information, try '--help'.\n",
                "error: unexpected argument '--x' found",
            ),
            ("an error is near\nError: invalid --x\nuse --help\n", "Error: invalid --x"),
            ("starting\nI/O error 5\nstopped", "I/O error 5"),
            ("{\"error\":\"survived\"}\n{\"message\":\"no Lease\"}\n", "{\"message\":\"no Lease\"}"),
            ("{\"error\":\"survived\"}\nkilled", "killed"),
            ("ääää\nlast", "last"),
        ] {
            assert_eq!(cause(log), Some(line));
        }
        assert_eq!(cause(" \n"), None);
    }

    #[test]
    fn the_cause_of_an_init_container_or_of_the_pod_is_found() {
        let status = json!({
            "initContainerStatuses": [waiting("ErrImagePull", "denied")],
            "containerStatuses": [waiting("PodInitializing", "")],
        });
        assert_eq!(why(&status).expect("a reason").0, "ErrImagePull: denied");
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" });
        let (text, hint) = why(&json!({ "conditions": [condition] })).expect("a reason");
        assert!(
            text == "Unschedulable: 0/1 nodes are available" && hint.contains("tolerations"),
            "{text} {hint}"
        );
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "disk pressure" });
        assert_eq!(why(&evicted).expect("a reason").0, "Evicted: disk pressure");
        let running = container(&json!({ "running": {} }), &json!({}));
        assert_eq!(why(&json!({ "phase": "Running", "containerStatuses": [running] })), None);
        assert_eq!(why(&json!({})), None);
    }
}
