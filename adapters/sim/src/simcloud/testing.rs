//! Test support: a cloud with a manual clock.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::call::{Call, CallResponse};
use super::model::Project;
use super::operation::Operation;
use super::{Cloud, Moment};

pub(super) struct Testbed {
    pub(super) cloud: Cloud,
    pub(super) now: Moment,
}

/// Creates a cloud with this number of instances. `settings` are merged into the default settings.
#[expect(clippy::needless_pass_by_value, reason = "a method reads better in tests")]
pub(super) fn testbed(n_instances: u64, settings: Value) -> Testbed {
    let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
    let mut testbed = Testbed { cloud: Cloud::new(project), now: Duration::ZERO };
    if n_instances > 0 {
        testbed.add_instances(n_instances);
    }
    testbed.set(&settings);
    testbed
}

impl Testbed {
    pub(super) fn set(&mut self, settings: &Value) {
        self.cloud.settings = self.cloud.settings.patched(settings).unwrap();
    }

    pub(super) fn add_instances(&mut self, count: u64) {
        let order = serde_json::from_value(json!({ "count": count, "name": "node-{n}" })).unwrap();
        let made = (self.cloud.wall(self.now), self.cloud.write(self.now));
        self.cloud.instances.create(&order, "sim-1", made).unwrap();
    }

    pub(super) fn delete_instance(&mut self, id: &str) {
        let write = self.cloud.write(self.now);
        self.cloud.instances.delete(id, write).unwrap();
    }

    pub(super) fn fault(&mut self, rule: &Value) {
        self.cloud.faults.add(serde_json::from_value(rule.clone()).unwrap()).unwrap();
    }

    pub(super) fn after(&mut self, ms: u64) -> &mut Self {
        self.now += Duration::from_millis(ms);
        self
    }

    pub(super) fn send(&mut self, call: &Call) -> CallResponse {
        self.cloud.handle(call, self.now)
    }

    /// Returns the response body of a call that must succeed.
    #[track_caller]
    pub(super) fn ok(&mut self, call: &Call) -> Value {
        let answer = self.send(call);
        assert!(answer.status.is_success(), "{}: {} {}", call.operation, answer.status, answer.body);
        answer.body
    }

    /// Returns the status and code of a call that must fail.
    #[track_caller]
    pub(super) fn refused(&mut self, call: &Call) -> (StatusCode, String) {
        let answer = self.send(call);
        assert!(!answer.status.is_success(), "{}: {} {}", call.operation, answer.status, answer.body);
        (answer.status, answer.body["code"].as_str().unwrap_or_default().to_owned())
    }

    /// Creates a load balancer, waits until it is complete and returns its ID.
    #[track_caller]
    pub(super) fn balancer(&mut self, name: &str) -> String {
        let id = self.ok(&create(name))["id"].as_str().unwrap().to_owned();
        self.after(300);
        id
    }

    #[track_caller]
    pub(super) fn show(&mut self, id: &str) -> Value {
        self.ok(&Call::new(Operation::GetLoadBalancer).on(id))
    }
}

pub(super) fn create(name: &str) -> Call {
    Call::new(Operation::CreateLoadBalancer).body(&json!({ "name": name, "scheme": "internet" }))
}

/// Returns the call that creates a listener with its own pool.
pub(super) fn listener(balancer: &str, port: u16) -> Call {
    let pool = json!({ "protocol": "TCP", "members": [{ "address": "10.0.0.1", "port": 30080 }] });
    let body = json!({ "protocol": "TCP", "port": port, "pool": pool });
    Call::new(Operation::CreateListener).on(balancer).body(&body)
}
