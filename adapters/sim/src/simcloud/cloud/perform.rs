//! Executes calls: parses query and body, calls the stores, and builds the response body.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::Cloud;
use crate::simcloud::Moment;
use crate::simcloud::call::Call;
use crate::simcloud::error::ApiError;
use crate::simcloud::load_balancers::{Children, LoadBalancers, Order, Outcome};
use crate::simcloud::model::{Project, RouteStatus};
use crate::simcloud::operation::Operation;
use crate::simcloud::routes::RouteRules;
use crate::simcloud::table::PageRequest;

pub(super) struct Done {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Cloud {
    pub(super) fn perform(&mut self, call: &Call, now: Moment, outcome: Outcome) -> Result<Done, ApiError> {
        call.check_query(parameters(call.operation))?;
        let id = call.id();
        match call.operation {
            Operation::GetProject => self.get_project(call),
            Operation::ListInstances => self.list_instances(call, now),
            Operation::BatchGetInstances => self.batch_get_instances(call, now),
            Operation::FindInstances => self.find_instances(call, now),
            Operation::GetInstance => done(&self.instances.get(id, now)?),
            Operation::ListLoadBalancers => self.list_load_balancers(call, now),
            Operation::GetLoadBalancer => done(&self.load_balancers.get(id, now)?),
            Operation::CreateLoadBalancer => {
                self.accept(now, outcome, |all, order| all.create(call.parsed()?, order))
            }
            Operation::UpdateLoadBalancer => {
                self.accept(now, outcome, |all, order| all.update(id, call.parsed()?, order))
            }
            Operation::DeleteLoadBalancer => {
                self.accept(now, outcome, |all, order| all.delete(id, children(call)?, order))
            }
            Operation::CreateListener => {
                self.accept(now, outcome, |all, order| all.create_listener(id, call.parsed()?, order))
            }
            Operation::UpdateListener => {
                self.accept(now, outcome, |all, order| all.update_listener(id, call.parsed()?, order))
            }
            Operation::DeleteListener => {
                self.accept(now, outcome, |all, order| all.delete_listener(id, order))
            }
            Operation::CreatePool => {
                self.accept(now, outcome, |all, order| all.create_pool(id, call.parsed()?, order))
            }
            Operation::UpdatePool => {
                self.accept(now, outcome, |all, order| all.update_pool(id, call.parsed()?, order))
            }
            Operation::DeletePool => self.accept(now, outcome, |all, order| all.delete_pool(id, order)),
            Operation::SetMembers => {
                self.accept(now, outcome, |all, order| all.set_members(id, call.parsed()?, order))
            }
            Operation::UpdateMembers => {
                self.accept(now, outcome, |all, order| all.update_members(id, call.parsed()?, order))
            }
            Operation::ListRoutes => self.list_routes(call, now),
            Operation::BatchRoutes => self.batch_routes(call, now, outcome),
        }
    }

    /// Executes a write to a load balancer. The write is accepted at once and completed later, so the status is 202.
    fn accept<T: Serialize>(
        &mut self,
        now: Moment,
        outcome: Outcome,
        write: impl FnOnce(&mut LoadBalancers, &Order<'_>) -> Result<T, ApiError>,
    ) -> Result<Done, ApiError> {
        let wall = self.wall(now);
        let order = Order { settings: &self.settings, now, wall, outcome };
        answer(StatusCode::ACCEPTED, &write(&mut self.load_balancers, &order)?)
    }

    fn get_project(&self, call: &Call) -> Result<Done, ApiError> {
        let other = self.tokens.other_project(call.bearer.as_deref())?;
        let project = other.map_or_else(|| self.project.project.clone(), str::to_owned);
        done(&Project { project, ..self.project.clone() })
    }

    fn list_instances(&self, call: &Call, now: Moment) -> Result<Done, ApiError> {
        let page = self.instances.list(self.page_request(call)?, now)?;
        done(&json!({ "instances": page.items, "next": page.next }))
    }

    fn batch_get_instances(&self, call: &Call, now: Moment) -> Result<Done, ApiError> {
        let ids = call.parameter("ids").unwrap_or_default().split(',').filter(|id| !id.is_empty());
        done(&self.instances.get_batch(ids, now)?)
    }

    fn find_instances(&self, call: &Call, now: Moment) -> Result<Done, ApiError> {
        let found = self.instances.find(call.parameter("name").unwrap_or_default(), now);
        done(&json!({ "instances": found, "next": null }))
    }

    fn list_load_balancers(&self, call: &Call, now: Moment) -> Result<Done, ApiError> {
        let tags: Vec<_> =
            call.query.iter().filter(|(key, _)| key == "tag").map(|(_, tag)| split(tag)).collect();
        let page = self.load_balancers.list(self.page_request(call)?, now, &tags)?;
        done(&json!({ "load_balancers": page.items, "next": page.next }))
    }

    fn list_routes(&self, call: &Call, now: Moment) -> Result<Done, ApiError> {
        let exists = |id: &str| self.instances.exists(id);
        let (routes, next) = self.routes.list(self.page_request(call)?, now, &exists)?;
        done(&json!({ "routes": routes, "next": next }))
    }

    fn batch_routes(&mut self, call: &Call, now: Moment, outcome: Outcome) -> Result<Done, ApiError> {
        let rules = RouteRules {
            quota: self.settings.quotas.routes,
            created_at: self.wall(now),
            write: self.write(now),
            status: match outcome {
                Outcome::Success => RouteStatus::Active,
                Outcome::Failure => RouteStatus::Error,
            },
            instance_exists: &|id| self.instances.exists(id),
        };
        done(&self.routes.batch(&call.parsed()?, &rules)?)
    }

    /// Reads the limit and the start of a page. A limit above the maximum page size is not an error. The page is then shorter than
    /// requested.
    fn page_request<'a>(&self, call: &'a Call) -> Result<PageRequest<'a>, ApiError> {
        let most = self.settings.page_size_max.0;
        let limit = match call.parameter("limit") {
            None => most,
            Some(text) => match text.parse::<usize>() {
                Ok(limit) if limit > 0 => limit.min(most),
                Ok(_) | Err(_) => return Err(ApiError::invalid("limit", "must be a number of at least 1")),
            },
        };
        Ok(PageRequest { limit, cursor: call.parameter("cursor") })
    }
}

const fn parameters(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::ListInstances | Operation::ListRoutes => &["limit", "cursor"],
        Operation::ListLoadBalancers => &["limit", "cursor", "tag"],
        Operation::BatchGetInstances => &["ids"],
        Operation::FindInstances => &["name"],
        Operation::DeleteLoadBalancer => &["cascade"],
        Operation::GetProject
        | Operation::GetInstance
        | Operation::GetLoadBalancer
        | Operation::CreateLoadBalancer
        | Operation::UpdateLoadBalancer
        | Operation::CreateListener
        | Operation::UpdateListener
        | Operation::DeleteListener
        | Operation::CreatePool
        | Operation::UpdatePool
        | Operation::DeletePool
        | Operation::SetMembers
        | Operation::UpdateMembers
        | Operation::BatchRoutes => &[],
    }
}

/// Parses `key:value`, or `key` alone, which matches any value.
fn split(tag: &str) -> (&str, Option<&str>) {
    tag.split_once(':').map_or((tag, None), |(key, value)| (key, Some(value)))
}

fn children(call: &Call) -> Result<Children, ApiError> {
    match call.parameter("cascade") {
        None | Some("false") => Ok(Children::Keep),
        Some("true") => Ok(Children::Cascade),
        Some(_) => Err(ApiError::invalid("cascade", "must be true or false")),
    }
}

fn done(body: &impl Serialize) -> Result<Done, ApiError> {
    answer(StatusCode::OK, body)
}

fn answer(status: StatusCode, body: &impl Serialize) -> Result<Done, ApiError> {
    let body = serde_json::to_value(body)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(Done { status, body })
}
