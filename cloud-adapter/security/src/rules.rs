//! What each role may do. Pure: decided on the method's path alone, before a request's body is read; and for the few rules that
//! need the body, on the fields that they need.

use cloud_api_proto::{AdapterError, Reason};

use crate::{Caller, Role};

/// The services behind the gRPC port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Adapter,
    Instances,
    LoadBalancers,
    Routes,
    Health,
    Reflection,
}

/// Whether a role may call a method, by its path: `/cloudadapter.v1alpha1.RouteService/ApplyRoutes`.
///
/// What is not allowed here is refused, methods that do not exist included. Every version of the contract has the same services,
/// so that a caller which tries a newer version first is told that it is not there.
#[must_use]
pub fn allows(role: Role, path: &str) -> bool {
    if role == Role::Anyone {
        return true;
    }
    let Some((service, method)) = split(path) else { return false };
    let watch = method.starts_with("Watch");
    match service {
        Service::Adapter | Service::Health | Service::Reflection => true,
        Service::Instances => match role {
            Role::NodeController => true,
            Role::Adapter | Role::Operator => watch,
            Role::ServiceController | Role::RouteController | Role::Anyone => false,
        },
        Service::LoadBalancers => match role {
            Role::ServiceController => true,
            Role::Operator => watch || matches!(method, "EnsureLoadBalancer" | "DeleteLoadBalancer"),
            Role::Adapter => watch,
            Role::NodeController | Role::RouteController | Role::Anyone => false,
        },
        Service::Routes => match role {
            Role::RouteController => true,
            Role::Operator => watch || method == "ApplyRoutes",
            Role::Adapter => watch,
            Role::NodeController | Role::ServiceController | Role::Anyone => false,
        },
    }
}

/// The service and the method of a path; `None` for a service that is not served.
fn split(path: &str) -> Option<(Service, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let service = match service {
        "grpc.health.v1.Health" => Service::Health,
        "grpc.reflection.v1.ServerReflection" => Service::Reflection,
        ours => match ours.strip_prefix("cloudadapter.")?.split_once('.')?.1 {
            "AdapterService" => Service::Adapter,
            "InstanceService" => Service::Instances,
            "LoadBalancerService" => Service::LoadBalancers,
            "RouteService" => Service::Routes,
            _ => return None,
        },
    };
    Some((service, method))
}

/// Whether a caller may make this change.
///
/// Operators and other replicas change nothing. A controller writes only under the fences of its own kind, which are named
/// `<role>/<shard>`: so one that is broken into cannot shut another out by a fence that is far ahead.
///
/// # Errors
/// `CALLER_FORBIDDEN`.
pub fn may_change(caller: &Caller, dry_run: bool, fence_scope: &str) -> Result<(), AdapterError> {
    let word = caller.role.word();
    match caller.role {
        Role::Anyone => Ok(()),
        Role::Operator | Role::Adapter if dry_run => Ok(()),
        Role::Operator | Role::Adapter => {
            Err(forbidden(caller, &format!("the role {word} changes nothing: set dry_run")))
        }
        Role::NodeController | Role::ServiceController | Role::RouteController => {
            let own = fence_scope.split_once('/').is_some_and(|(kind, _shard)| kind == word);
            if dry_run || fence_scope.is_empty() || own {
                return Ok(());
            }
            Err(forbidden(caller, &format!("fence.scope: the role {word} writes as {word}/SHARD")))
        }
    }
}

/// Whether a caller may ask about this cluster: an adapter that was told its cluster serves no other. `None`: any cluster.
///
/// # Errors
/// `CALLER_FORBIDDEN`.
pub fn may_name(caller: &Caller, served: Option<&str>, asked: &str) -> Result<(), AdapterError> {
    match served {
        Some(served) if served != asked => {
            Err(forbidden(caller, &format!("context.cluster_id: this adapter serves the cluster {served}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// The refusal of a caller that is known.
pub(crate) fn forbidden(caller: &Caller, why: &str) -> AdapterError {
    AdapterError::new(Reason::CallerForbidden, format!("{}: {why}", caller.subject))
}

#[cfg(test)]
mod tests;
