//! Tests of valid and invalid keys.

use serde_json::json;

use super::*;

fn cloud(mut changes: Value) -> Result<Cloud, Vec<String>> {
    let mut keys = json!({
        "auth": {
            "auth_url": "https://cloud.example:5000",
            "username": "demo",
            "password": "correct horse",
            "user_domain_name": "Default",
            "project_name": "shop",
            "project_domain_id": "default",
        },
        "region_name": "RegionOne",
    });
    let auth = changes["auth"].take();
    for (section, changes) in [(&mut keys["auth"], auth)] {
        let Value::Object(changes) = changes else { continue };
        for (key, value) in changes {
            section[key] = value;
        }
    }
    let Value::Object(mut changes) = changes else { panic!("no section") };
    changes.remove("auth");
    for (key, value) in changes {
        keys[key] = value;
    }
    let Value::Object(keys) = keys else { panic!("no section") };
    Cloud::read(Keys::of_cloud("prod", keys), &Given::default())
}

/// Reads a cloud whose keys contain an application credential and no password.
fn application_credential(changes: Value) -> Result<Cloud, Vec<String>> {
    let mut auth = json!({ "username": null, "password": null, "user_domain_name": null, "project_name": null, "project_domain_id": null, "application_credential_secret": "s3cret" });
    let Value::Object(changes) = changes else { panic!("no section") };
    for (key, value) in changes {
        auth[key] = value;
    }
    cloud(json!({ "auth": auth, "auth_type": "v3applicationcredential" }))
}

#[test]
fn configured_values_are_used() {
    let read = cloud(json!({
        "interface": "internalURL",
        "network_endpoint_override": "http://127.0.0.1:9696/",
        "cacert": "/etc/cloud/ca.pem",
        "identity_api_version": 3,
        "verify": true,
        "volume_api_version": "3",
    }));
    let read = read.expect("valid keys");
    assert_eq!(
        (read.auth_url.as_str(), read.region.as_str()),
        ("https://cloud.example:5000/v3", "RegionOne")
    );
    assert_eq!(read.interface, Interface::Internal);
    let reported =
        [(Service::Network, "http://127.0.0.1:9696"), (Service::Identity, "https://cloud.example:5000/v3")];
    assert_eq!(read.overrides, reported.map(|(service, url)| (service, url.to_owned())).into());
    assert_eq!(read.ca, Some("/etc/cloud/ca.pem".into()));
    let domain = Some(Domain::Id("default".to_owned()));
    assert_eq!(read.project, WantedProject { id: None, name: Some("shop".to_owned()), domain });
    assert!(
        matches!(&read.credentials, Credentials::Password { user: User::Name(name, _), .. } if name == "demo")
    );
    assert!(!format!("{read:?}").contains("horse"));
}

#[test]
fn credentials_are_recognised_by_type_or_secret() {
    let token = cloud(json!({ "auth": { "password": null, "token": "gAAA" } })).expect("a token");
    assert!(matches!(token.credentials, Credentials::Token(_)));
    let typed = cloud(json!({ "auth_type": "v3password" })).expect("a password");
    assert!(matches!(typed.credentials, Credentials::Password { .. }));
    let by_id = application_credential(json!({ "application_credential_id": "ac1", "project_id": "p1" }))
        .expect("good");
    assert!(
        matches!(&by_id.credentials, Credentials::ApplicationCredential { credential: ApplicationCredential::Id(id), .. } if id == "ac1")
    );
    assert_eq!(by_id.project.id.as_deref(), Some("p1"), "the project is checked, although it is not sent");
    let by_name = application_credential(json!({ "application_credential_name": "ccm", "user_id": "u1" }))
        .expect("good");
    assert!(
        matches!(&by_name.credentials, Credentials::ApplicationCredential { credential: ApplicationCredential::Name(name, User::Id(_)), .. } if name == "ccm")
    );
    let trusted = cloud(json!({ "auth": { "trust_id": "t1", "project_name": null } }))
        .expect("the trust determines the project");
    assert_eq!(trusted.trust.as_deref(), Some("t1"));
}

/// Checks the beginning of the first error.
#[track_caller]
fn refused(read: Result<Cloud, Vec<String>>, keys: &str, wanted: &str) {
    let faults = read.expect_err(keys);
    let first = faults.first().expect("a reason");
    assert!(first.starts_with(&format!("clouds.prod.{wanted}")), "{keys}: {faults:?}");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn errors_in_auth_name_the_key_and_the_fix() {
    for (keys, wanted) in [
        (r#"{"auth_url": null}"#, "auth_url: is missing: set it to the address of Keystone"),
        (r#"{"auth_url": "cloud.example:5000"}"#, "auth_url: invalid address of an HTTP server: write it"),
        (
            r#"{"auth_url": "https://c/v2.0/"}"#,
            "auth_url: ends in /v2.0, a version that Keystone no longer has: end it in /v3",
        ),
        (r#"{"password": ""}"#, "password: is missing: set a password, a token or"),
        (r#"{"username": null}"#, "username: is missing, as is user_id"),
        (r#"{"user_domain_name": null}"#, "user_domain_name: is missing: user names are unique"),
        (r#"{"project_name": null}"#, "project_id: is missing, as is project_name"),
        (r#"{"project_domain_id": null}"#, "project_domain_name: is missing"),
        (r#"{"tenant_name": "b"}"#, "tenant_name: differs from project_name: remove it"),
        (r#"{"token": "t"}"#, "password: conflicts with token: keep only one"),
        (r#"{"domain_name": "Default"}"#, "domain_name: the adapter works in one project"),
        (r#"{"passcode": "123"}"#, "passcode: a second factor needs user input: use"),
    ] {
        refused(cloud(json!({ "auth": json(keys) })), keys, &format!("auth.{wanted}"));
    }
    for (keys, wanted) in [
        (r"{}", "application_credential_id: is missing, as is application_credential_name"),
        (r#"{"application_credential_name": "ccm"}"#, "username: is missing"),
        (r#"{"application_credential_id": "a", "trust_id": "t"}"#, "trust_id: conflicts with"),
    ] {
        refused(application_credential(json(keys)), keys, &format!("auth.{wanted}"));
    }
}

#[test]
fn errors_beside_auth_name_the_key_and_the_fix() {
    for (keys, wanted) in [
        (r#"{"auth_type": "v3oidcpassword"}"#, "auth_type: unsupported type v3oidcpassword: use"),
        (r#"{"auth_type": "v3token"}"#, "auth.password: conflicts with auth_type"),
        (r#"{"verify": false}"#, "verify: the credentials could be sent to an impostor: remove it, and set"),
        (r#"{"cert": "a.pem"}"#, "cert: client certificates are not supported: remove it"),
        (r#"{"profile": "acme"}"#, "profile: vendor profiles are not supported: set auth_url"),
        (r#"{"identity_api_version": "2"}"#, "identity_api_version: only 3 is supported: remove it"),
        (
            r#"{"region_name": null}"#,
            "region_name: is missing: set it, or adapter.openstack.region of the chart (--region)",
        ),
        (
            r#"{"region_name": "", "regions": ["a", {"name": "b"}]}"#,
            "regions: select one with adapter.openstack.region of the chart (--region): a, b",
        ),
        (r#"{"interface": "private"}"#, "interface: invalid interface: use public, internal or admin"),
        (r#"{"compute_endpoint_override": "nova"}"#, "compute_endpoint_override: invalid address of an HTTP"),
    ] {
        refused(cloud(json(keys)), keys, wanted);
    }
}

#[test]
fn flags_take_precedence_over_keys() {
    let keys = Keys::of_environment([
        ("OS_AUTH_URL", "https://cloud.example/v3"),
        ("OS_TOKEN", "gAAA"),
        ("OS_PROJECT_ID", "p1"),
        ("OS_REGION_NAME", "north"),
        ("OS_INTERFACE", "public"),
    ]);
    let given = Given { region: Some("south".to_owned()), interface: Some(Interface::Admin) };
    let read = Cloud::read(keys, &given).expect("valid keys");
    assert_eq!((read.region.as_str(), read.interface), ("south", Interface::Admin));
}
