use std::sync::Arc;

use super::*;

const V: &str = "/cloudadapter.v1alpha1.";

/// Returns every method of the contract and of the standard services, and the roles that may call it.
fn table() -> Vec<(String, &'static [Role])> {
    use Role::{Adapter, NodeController, Operator, RouteController, ServiceController};
    const ALL: &[Role] = &Role::NAMED;
    let ours: [(&str, &[Role]); 11] = [
        ("AdapterService/GetInfo", ALL),
        ("AdapterService/WatchStatus", ALL),
        ("InstanceService/WatchInstances", &[NodeController, Adapter, Operator]),
        ("InstanceService/BatchGetInstances", &[NodeController]),
        ("LoadBalancerService/WatchLoadBalancers", &[ServiceController, Adapter, Operator]),
        ("LoadBalancerService/PutBackendSet", &[ServiceController]),
        ("LoadBalancerService/EnsureLoadBalancer", &[ServiceController, Operator]),
        ("LoadBalancerService/DeleteLoadBalancer", &[ServiceController, Operator]),
        ("RouteService/WatchRoutes", &[RouteController, Adapter, Operator]),
        ("RouteService/ApplyRoutes", &[RouteController, Operator]),
        ("SecretService/GetSecret", &[]),
    ];
    let standard: [(&str, &[Role]); 9] = [
        ("/grpc.health.v1.Health/Check", ALL),
        ("/grpc.health.v1.Health/Watch", ALL),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ALL),
        ("/grpc.health.v1.HealthX/Check", &[]),
        ("/RouteService/ApplyRoutes", &[]),
        ("/evil.v1alpha1.RouteService/ApplyRoutes", &[]),
        ("//cloudadapter.v1alpha1.RouteService/ApplyRoutes", &[]),
        ("/", &[]),
        ("", &[]),
    ];
    let ours = ours.map(|(path, roles)| (format!("{V}{path}"), roles));
    ours.into_iter().chain(standard.map(|(path, roles)| (path.to_owned(), roles))).collect()
}

#[test]
fn each_role_may_call_its_methods_and_no_others() {
    for (path, allowed) in table() {
        for role in Role::NAMED {
            assert_eq!(allows(role, &path), allowed.contains(&role), "{} calls {path}", role.word());
        }
        assert!(allows(Role::Anyone, &path), "without authentication: {path}");
    }
}

#[test]
fn the_table_above_names_every_method_of_the_contract() {
    use prost::Message as _;
    let files =
        prost_types::FileDescriptorSet::decode(cloud_api_proto::DESCRIPTOR_SET).expect("a descriptor");
    let services =
        files.file.iter().flat_map(|file| file.service.iter().map(|service| (file.package(), service)));
    let mut methods = 0;
    for (package, service) in services {
        for method in &service.method {
            let path = format!("/{package}.{}/{}", service.name(), method.name());
            assert!(table().iter().any(|(known, _)| *known == path), "{path} has no row in the table");
            methods += 1;
        }
    }
    assert_eq!(methods, 10);
}

#[test]
fn a_newer_contract_has_the_same_rules() {
    let newer = "/cloudadapter.v1.InstanceService/BatchGetInstances";
    assert!(allows(Role::NodeController, newer));
    assert!(!allows(Role::RouteController, newer));
}

#[test]
fn changes_are_bound_to_the_role() {
    for (role, dry_run, fence, allowed) in [
        (Role::ServiceController, false, "service-controller/3", true),
        (Role::ServiceController, false, "", true),
        (Role::ServiceController, false, "route-controller/0", false),
        (Role::ServiceController, false, "service-controller", false),
        (Role::ServiceController, false, "service-controller-x/0", false),
        (Role::ServiceController, true, "route-controller/0", true),
        (Role::RouteController, false, "route-controller/0", true),
        (Role::RouteController, false, "service-controller/0", false),
        (Role::Operator, true, "", true),
        (Role::Operator, false, "operator/0", false),
        (Role::Operator, false, "", false),
        (Role::Adapter, false, "", false),
        (Role::Anyone, false, "x", true),
    ] {
        let caller = Caller { role, subject: Arc::from("who") };
        let said = may_change(&caller, dry_run, fence);
        assert_eq!(said.is_ok(), allowed, "{} dry_run {dry_run} {fence:?}: {said:?}", role.word());
        if let Err(error) = said {
            assert_eq!(error.reason, Reason::CallerForbidden);
        }
    }
}

#[test]
fn an_adapter_of_one_cluster_serves_no_other() {
    let caller = Caller::anyone();
    assert!(may_name(&caller, None, "b").is_ok());
    assert!(may_name(&caller, Some("a"), "a").is_ok());
    let refused = may_name(&caller, Some("a"), "b").expect_err("the request is for another cluster");
    assert_eq!(refused.reason, Reason::CallerForbidden);
    assert!(refused.message.contains("context.cluster_id"), "{refused}");
}
