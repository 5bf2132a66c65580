//! Defines fault rules, which select calls and say when and how these calls fail.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;
use super::operation::{Access, Operation};
use super::table::id;

/// One fault rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The condition that selects the matching calls.
    #[serde(rename = "match")]
    pub matches: Match,
    /// Which of the matching calls are affected.
    #[serde(default)]
    pub when: When,
    /// The effect on the affected calls.
    pub action: Action,
}

/// A condition for the calls to which a rule applies. All fields that are set must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Name of the operation, where `*` matches any characters: `CreateListener`, `Create*`, `*`.
    pub operation: String,
    /// `read` or `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// ID in the path, as in `lb-0001`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// Which of the matching calls a rule affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// All matching calls, until the rule is deleted.
    #[default]
    Always,
    /// The next `n` matching calls.
    Next(u64),
    /// Only the n-th matching call after the rule is created, counted from 1.
    Nth(u64),
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Returns this response without executing the call.
    Respond(Canned),
    /// Executes the call and returns this response.
    RespondAfter(Canned),
    /// Executes the call at once and responds this many milliseconds later.
    DelayMs(u64),
    /// Closes the connection without executing the call.
    CloseBefore,
    /// Executes the call and closes the connection without a response.
    CloseAfter,
    /// Closes the connection without a response, and executes the call this many milliseconds later.
    LateMs(u64),
    /// Returns a listing without items.
    EmptyPage,
    /// Announces the full length of the response, but closes the connection after half of the response.
    TruncateBody,
    /// Accepts a create or change, which later ends in ERROR.
    ErrorState,
}

/// A response given in the rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canned {
    /// HTTP status, 200..=599.
    pub status: u16,
    /// Additional headers, such as `retry-after`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body. Default: an error in the cloud's format with the code `injected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// An active rule.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) rule: FaultRule,
    /// Number of matching calls so far.
    pub(super) seen: u64,
    /// Number of affected calls.
    pub(super) fired: u64,
}

/// All rules, oldest first.
#[derive(Debug, Default)]
pub(super) struct Faults {
    last: u64,
    rules: BTreeMap<u64, Standing>,
}

impl Faults {
    pub(super) fn add(&mut self, rule: FaultRule) -> Result<Standing, ApiError> {
        check(&rule)?;
        self.last = self.last.saturating_add(1);
        let standing = Standing { id: id("f", self.last), rule, seen: 0, fired: 0 };
        self.rules.insert(self.last, standing.clone());
        Ok(standing)
    }

    pub(super) fn list(&self) -> Vec<&Standing> {
        self.rules.values().collect()
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn remove(&mut self, id: &str) -> Result<(), ApiError> {
        let before = self.rules.len();
        self.rules.retain(|_, standing| standing.id != id);
        if self.rules.len() == before { Err(ApiError::not_found("fault", id)) } else { Ok(()) }
    }

    /// Returns the action of the rule that affects a call. The oldest rule that fires applies, but every rule that matches counts the call.
    pub(super) fn strike(&mut self, operation: Operation, object: Option<&str>) -> Option<Action> {
        let mut struck = None;
        for standing in self.rules.values_mut() {
            if !standing.rule.matches.holds(operation, object) {
                continue;
            }
            standing.seen = standing.seen.saturating_add(1);
            let fires = match standing.rule.when {
                When::Always => true,
                When::Next(calls) => standing.fired < calls,
                When::Nth(call) => standing.seen == call,
            };
            if fires && struck.is_none() {
                standing.fired = standing.fired.saturating_add(1);
                struck = Some(standing.rule.action.clone());
            }
        }
        struck
    }
}

impl Match {
    fn holds(&self, operation: Operation, object: Option<&str>) -> bool {
        glob(&self.operation, &operation.to_string())
            && self.access.is_none_or(|wanted| operation.access() == wanted)
            && self.object.as_deref().is_none_or(|wanted| object == Some(wanted))
    }
}

fn check(rule: &FaultRule) -> Result<(), ApiError> {
    let pattern = &rule.matches.operation;
    if !Operation::ALL.iter().any(|operation| glob(pattern, &operation.to_string())) {
        let names: Vec<String> = Operation::ALL.iter().map(ToString::to_string).collect();
        let message = format!("{pattern:?} matches no operation; the operations are {}", names.join(", "));
        return Err(ApiError::invalid("match.operation", message));
    }
    if matches!(rule.when, When::Next(0) | When::Nth(0)) {
        return Err(ApiError::invalid("when", "must be at least 1"));
    }
    match &rule.action {
        Action::Respond(canned) | Action::RespondAfter(canned) => check_canned(canned),
        Action::DelayMs(_)
        | Action::CloseBefore
        | Action::CloseAfter
        | Action::LateMs(_)
        | Action::EmptyPage
        | Action::TruncateBody
        | Action::ErrorState => Ok(()),
    }
}

fn check_canned(canned: &Canned) -> Result<(), ApiError> {
    if !(200..=599).contains(&canned.status) {
        return Err(ApiError::invalid("action.status", "must be 200 to 599"));
    }
    for (name, value) in &canned.headers {
        let name_is_valid = http::HeaderName::try_from(name).is_ok();
        if !name_is_valid || http::HeaderValue::try_from(value).is_err() {
            return Err(ApiError::invalid("action.headers", format!("invalid header {name:?}")));
        }
    }
    Ok(())
}

/// Whether `text` matches `pattern`, where each `*` matches any number of characters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| tail.get(at..).is_some_and(|tail| glob(rest, tail)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> FaultRule {
        serde_json::from_value(value).unwrap()
    }

    fn strikes(faults: &mut Faults, operation: Operation, object: Option<&str>, calls: usize) -> Vec<bool> {
        (0..calls).map(|_| faults.strike(operation, object).is_some()).collect()
    }

    #[test]
    fn rule_fires_as_configured() {
        for (name, when, fired) in [
            ("always", json!("always"), [true, true, true, true]),
            ("next 2", json!({ "next": 2 }), [true, true, false, false]),
            ("nth 3", json!({ "nth": 3 }), [false, false, true, false]),
        ] {
            let mut faults = Faults::default();
            let text = json!({ "match": { "operation": "Get*" }, "when": when, "action": "close_before" });
            faults.add(rule(text)).unwrap();
            assert_eq!(strikes(&mut faults, Operation::GetInstance, None, 4), fired, "{name}");
            assert_eq!(strikes(&mut faults, Operation::ListInstances, None, 1), [false], "{name}");
        }
    }

    #[test]
    fn rule_can_select_one_object() {
        let mut faults = Faults::default();
        let matches = json!({ "operation": "*", "object": "lb-0002" });
        faults.add(rule(json!({ "match": matches, "action": { "delay_ms": 5 } }))).unwrap();
        assert_eq!(faults.strike(Operation::GetLoadBalancer, Some("lb-0001")), None);
        assert_eq!(faults.strike(Operation::GetLoadBalancer, Some("lb-0002")), Some(Action::DelayMs(5)));
    }

    #[test]
    fn rule_can_select_writes() {
        let mut faults = Faults::default();
        let matches = json!({ "operation": "*", "access": "write" });
        faults.add(rule(json!({ "match": matches, "when": { "nth": 2 }, "action": "close_after" }))).unwrap();
        for (operation, struck) in [
            (Operation::CreatePool, None),
            (Operation::ListRoutes, None),
            (Operation::BatchRoutes, Some(Action::CloseAfter)),
            (Operation::DeletePool, None),
        ] {
            assert_eq!(faults.strike(operation, None), struck, "{operation}");
        }
    }

    #[test]
    fn the_oldest_rule_decides_until_it_is_used_up() {
        let mut faults = Faults::default();
        let matches = json!({ "operation": "ListRoutes" });
        let first = json!({ "match": matches, "when": { "next": 1 }, "action": "close_before" });
        faults.add(rule(first)).unwrap();
        faults.add(rule(json!({ "match": matches, "action": "empty_page" }))).unwrap();
        assert_eq!(faults.strike(Operation::ListRoutes, None), Some(Action::CloseBefore));
        assert_eq!(faults.strike(Operation::ListRoutes, None), Some(Action::EmptyPage));
    }

    #[test]
    fn a_rule_that_can_never_fire_is_refused() {
        let canned = json!({ "respond": { "status": 99 } });
        for (text, named) in [
            (
                json!({ "match": { "operation": "CreateBalancer" }, "action": "close_before" }),
                "CreateBalancer",
            ),
            (
                json!({ "match": { "operation": "*" }, "when": { "next": 0 }, "action": "close_before" }),
                "when",
            ),
            (json!({ "match": { "operation": "*" }, "action": canned }), "status"),
        ] {
            let error = Faults::default().add(rule(text)).unwrap_err();
            assert!(error.message.contains(named), "{error}");
        }
    }

    #[test]
    fn star_matches_any_characters() {
        for (pattern, text, holds) in [
            ("*", "ListRoutes", true),
            ("List*", "ListRoutes", true),
            ("*Routes", "ListRoutes", true),
            ("L*R*s", "ListRoutes", true),
            ("List", "ListRoutes", false),
            ("*Route", "ListRoutes", false),
            ("", "", true),
        ] {
            assert_eq!(glob(pattern, text), holds, "{pattern} {text}");
        }
    }
}
