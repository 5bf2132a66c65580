//! Permissions of the roles. This module is pure. Most rules use only the path of the method, before the body is read; a few use fields of
//! the request.

use cloud_api_proto::{AdapterError, Reason};

use crate::auth::{Caller, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Adapter,
    Instances,
    LoadBalancers,
    Routes,
    Health,
    Reflection,
}

/// Returns whether a role may call the method with this path, such as `/cloudadapter.v1alpha1.RouteService/ApplyRoutes`.
///
/// All other paths are refused, including the paths of unknown services. The version of the contract in the path is ignored, so a caller
/// that tries a newer version first gets UNIMPLEMENTED and not a refusal.
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

/// Returns the service and the method of a path. `None`: the service is unknown.
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

/// Checks that a caller may make this change.
///
/// Operators and other replicas may only make dry runs. A controller may write only with fences of its own role, named `<role>/<shard>`. So
/// a compromised controller cannot lock out another controller with a high fence.
pub fn may_change(caller: &Caller, dry_run: bool, fence_scope: &str) -> Result<(), AdapterError> {
    let word = caller.role.word();
    match caller.role {
        Role::Anyone => Ok(()),
        Role::Operator | Role::Adapter if dry_run => Ok(()),
        Role::Operator | Role::Adapter => {
            Err(forbidden(caller, &format!("the role {word} may not change anything: set dry_run")))
        }
        Role::NodeController | Role::ServiceController | Role::RouteController => {
            let own = fence_scope.split_once('/').is_some_and(|(kind, _shard)| kind == word);
            if dry_run || fence_scope.is_empty() || own {
                return Ok(());
            }
            Err(forbidden(caller, &format!("fence.scope: the role {word} must use the scope {word}/SHARD")))
        }
    }
}

/// Checks that a caller may send requests for the cluster `asked`. `served` is the only cluster that the adapter serves; `None`: the
/// adapter serves any cluster.
pub fn may_name(caller: &Caller, served: Option<&str>, asked: &str) -> Result<(), AdapterError> {
    match served {
        Some(served) if served != asked => Err(forbidden(
            caller,
            &format!("context.cluster_id: this adapter serves only the cluster {served}"),
        )),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn forbidden(caller: &Caller, why: &str) -> AdapterError {
    AdapterError::new(Reason::CallerForbidden, format!("{}: {why}", caller.subject))
}

#[cfg(test)]
mod tests;
