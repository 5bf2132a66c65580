//! Verifies the table of roles and methods, and the requests that each role may make.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        ApplyRoutesRequest, EnsureLoadBalancerRequest, Fence, RequestContext, WatchLoadBalancersRequest,
    },
};
use tonic::Code;

use super::{HEALTH, METHODS, NOWHERE, garbage};
use crate::checks::prelude::*;

const CALLERS: [Role; 5] =
    [Role::NodeController, Role::ServiceController, Role::RouteController, Role::Operator, Role::Stranger];
const CHANGES: [&str; 3] = ["EnsureLoadBalancer", "DeleteLoadBalancer", "ApplyRoutes"];
/// A method in a version that is not served, and a method that exists in no version.
const OTHER_VERSION: &str = "/cloudadapter.v9.RouteService/ApplyRoutes";
const NO_METHOD: &str = "/cloudadapter.v1alpha1.InstanceService/NoSuchMethod";

/// common.proto, `REASON_CALLER_FORBIDDEN`: each controller may call its own service and `AdapterService`, an operator may call watches and
/// dry runs, and an identity without a role may call nothing. The adapter checks the method before it decodes the request, then
/// cluster, fence and `dry_run`.
pub(super) async fn matrix(cx: &Context) -> Verdict {
    for role in CALLERS.into_iter().filter(|role| works(cx, *role)) {
        let api = cx.api(role)?;
        for path in METHODS.into_iter().chain([HEALTH]).filter(|path| is_served(cx, path)) {
            if reaches(role, path) {
                admitted(role, path, api.raw(path, Vec::new()).await)?;
            } else {
                forbidden(role, path, api.raw(path, garbage()).await)?;
            }
        }
        forbidden(role, NOWHERE, api.raw(NOWHERE, garbage()).await)?;
    }
    unknown_methods(cx).await?;
    operator(cx).await?;
    fences(cx).await?;
    other_cluster(cx).await
}

fn is_served(cx: &Context, path: &str) -> bool {
    capability_of(path).is_none_or(|name| cx.can(name))
}

/// A role is tested only if the adapter has its capability: an adapter without routes need not know the role of the route-controller.
fn works(cx: &Context, role: Role) -> bool {
    duty_of(role).is_none_or(|name| cx.can(name))
}

/// Returns the capability that an adapter must report to serve a method. `None` if all adapters serve the method, or none do.
fn capability_of(path: &str) -> Option<&'static str> {
    let (service, _method) = path.rsplit_once('/')?;
    let (_package, service) = service.rsplit_once('.')?;
    match service {
        "InstanceService" => Some("instances"),
        "LoadBalancerService" => Some("loadbalancers"),
        "RouteService" => Some("routes"),
        _ => None,
    }
}

fn duty_of(role: Role) -> Option<&'static str> {
    match role {
        Role::NodeController => Some("instances"),
        Role::ServiceController => Some("loadbalancers"),
        Role::RouteController => Some("routes"),
        Role::Operator | Role::Stranger | Role::Anonymous => None,
    }
}

/// Returns whether the contract allows a role to call a method. What an operator may change depends on the request, which the function
/// `operator` tests.
fn reaches(role: Role, path: &str) -> bool {
    let (service, method) = path.rsplit_once('/').unwrap_or_default();
    let is = |name: &str| service.ends_with(name);
    let common = is(".AdapterService") || path == HEALTH;
    match role {
        Role::NodeController => common || is(".InstanceService"),
        Role::ServiceController => common || is(".LoadBalancerService"),
        Role::RouteController => common || is(".RouteService"),
        Role::Operator => common || method.starts_with("Watch") || CHANGES.contains(&method),
        Role::Stranger | Role::Anonymous => false,
    }
}

/// Asserts that a call was authorized. The call may still fail for another reason.
fn admitted<T: std::fmt::Debug>(role: Role, path: &str, answer: CallResult<T>) -> Verdict {
    let Err(error) = answer else { return Ok(()) };
    // The adapter may refuse an operator's change without a context either for the missing context or for the role.
    if role == Role::Operator && CHANGES.iter().any(|method| path.ends_with(method)) {
        return Ok(());
    }
    let turned_away = [Code::PermissionDenied, Code::Unauthenticated].contains(&error.status.code());
    expect::that(!turned_away, &format!("the role {role} may call {path}"), || error.to_string())
}

fn forbidden<T: std::fmt::Debug>(role: Role, path: &str, answer: CallResult<T>) -> Verdict {
    expect::refused(answer, Reason::CallerForbidden).map(drop).map_err(|stop| match stop {
        Stop::Failed(finding) => {
            Stop::failed(format!("the role {role} may not call {path}: {}", finding.wants), finding.came)
        }
        Stop::Skipped(why) => Stop::Skipped(why),
    })
}

/// A role may also call other versions of its service. A caller that may call a service gets UNIMPLEMENTED for an unknown method of it.
async fn unknown_methods(cx: &Context) -> Verdict {
    let asked = |pair: &(Role, &'static str)| works(cx, pair.0) && is_served(cx, pair.1);
    let theirs = [(Role::RouteController, OTHER_VERSION), (Role::NodeController, NO_METHOD)];
    for (role, path) in theirs.into_iter().filter(asked) {
        let wants = format!("{path} is UNIMPLEMENTED for the role {role}");
        match cx.api(role)?.raw(path, Vec::new()).await {
            Ok(_) => return Err(Stop::failed(wants, "OK")),
            Err(error) => expect::equal(&wants, &error.status.code(), &Code::Unimplemented)?,
        }
    }
    let others = [(Role::NodeController, OTHER_VERSION), (Role::RouteController, NO_METHOD)];
    for (role, path) in others.into_iter().filter(asked) {
        forbidden(role, path, cx.api(role)?.raw(path, garbage()).await)?;
    }
    Ok(())
}

/// An operator's dry runs are allowed even if other fields are missing. An operator's changes are refused.
async fn operator(cx: &Context) -> Verdict {
    let (api, cluster) = (cx.api(Role::Operator)?, cx.cluster());
    let role = Role::Operator;
    for dry_run in [true, false] {
        let balancer = cluster.balancer("web");
        let mut ensure = balancer.request.clone();
        let mut delete = balancer.removal();
        let mut apply = cluster.routes(Vec::new());
        (ensure.dry_run, delete.dry_run, apply.dry_run) = (dry_run, dry_run, dry_run);
        let word = if dry_run { " as a dry run" } else { "" };
        let judge = |method: &str, result: CallResult<()>| {
            let path = format!("{method}{word}");
            if dry_run { admitted(role, &path, result) } else { forbidden(role, &path, result) }
        };
        if cx.can("loadbalancers") {
            judge("EnsureLoadBalancer", api.ensure_load_balancer(ensure).await.map(drop))?;
            judge("DeleteLoadBalancer", api.delete_load_balancer(delete).await.map(drop))?;
        }
        if cx.can("routes") {
            judge("ApplyRoutes", api.apply_routes(apply).await.map(drop))?;
        }
    }
    Ok(())
}

/// A controller may write only with its own kind of fence, so that a compromised controller cannot block another controller.
async fn fences(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let foreign = |scope: &str| Fence { scope: scope.to_owned(), epoch: u64::MAX, sequence: 1 };
    if cx.can("loadbalancers") {
        let balancer = cluster.balancer("web").fence(foreign("route-controller/0"));
        let result = cx.service()?.ensure_load_balancer(balancer.request).await;
        forbidden(Role::ServiceController, "EnsureLoadBalancer with the fence route-controller/0", result)?;
    }
    if !cx.can("routes") {
        return Ok(());
    }
    let routes =
        ApplyRoutesRequest { fence: Some(foreign("service-controller/0")), ..cluster.routes(Vec::new()) };
    let result = cx.route()?.apply_routes(routes).await;
    forbidden(Role::RouteController, "ApplyRoutes with the fence service-controller/0", result)
}

/// An adapter that is configured for one cluster serves no other cluster.
async fn other_cluster(cx: &Context) -> Verdict {
    if cx.lane().params.cluster_id.is_none() {
        cx.without(Need::Param("lanes[].clusterId"));
        return Ok(());
    }
    let cluster = cx.cluster();
    let context =
        Some(RequestContext { cluster_id: "conformance-another-cluster".to_owned(), ..cluster.context() });
    let word = |method: &str| format!("{method} for another cluster");
    if cx.can("instances") {
        let node = cx.node()?;
        let mut batch = cluster.instances(cluster.context(), []);
        batch.context.clone_from(&context);
        forbidden(node.role(), &word("BatchGetInstances"), node.batch_get_instances(batch).await)?;
    }
    if !cx.can("loadbalancers") {
        return Ok(());
    }
    let service = cx.service()?;
    let ensure = EnsureLoadBalancerRequest {
        context: context.clone(),
        dry_run: true,
        ..cluster.balancer("web").request
    };
    forbidden(service.role(), &word("EnsureLoadBalancer"), service.ensure_load_balancer(ensure).await)?;
    let watch = WatchLoadBalancersRequest { context, ..WatchLoadBalancersRequest::default() };
    let result = match service.watch_load_balancers(watch).await {
        Ok(mut watch) => watch.next(cx.params().timings.ready).await.map(drop),
        Err(error) => Err(error),
    };
    forbidden(service.role(), &word("WatchLoadBalancers"), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_may_call_the_services_of_its_capability() {
        for path in METHODS.into_iter().chain([OTHER_VERSION, NO_METHOD]) {
            let service = capability_of(path);
            for role in [Role::NodeController, Role::ServiceController, Role::RouteController] {
                let own = service.is_none() || service == duty_of(role);
                assert_eq!(reaches(role, path), own, "{role} {path}");
            }
        }
        assert_eq!([HEALTH, NOWHERE].map(capability_of), [None, None]);
    }
}
