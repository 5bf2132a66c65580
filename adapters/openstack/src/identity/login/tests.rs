//! These tests check the bodies that are sent to Keystone, and the parsing of Keystone's answers.

use std::collections::BTreeMap;

use super::*;
use crate::identity::catalogue::{Interface, Service};

fn cloud(credentials: Credentials) -> Cloud {
    Cloud {
        auth_url: "https://cloud.example/v3".to_owned(),
        credentials,
        project: WantedProject {
            id: None,
            name: Some("shop".to_owned()),
            domain: Some(Domain::Name("Default".to_owned())),
        },
        trust: None,
        region: "RegionOne".to_owned(),
        interface: Interface::Public,
        overrides: BTreeMap::new(),
        ca: None,
    }
}

fn demo() -> User {
    User::Name("demo".to_owned(), Domain::Id("default".to_owned()))
}

#[test]
fn log_in_body_of_each_kind_of_credentials() {
    let scope = json!({ "project": { "name": "shop", "domain": { "name": "Default" } } });
    let password = cloud(Credentials::Password { user: demo(), password: "pw".into() });
    let user = json!({ "name": "demo", "domain": { "id": "default" }, "password": "pw" });
    assert_eq!(
        request(&password),
        json!({ "auth": { "identity": { "methods": ["password"], "password": { "user": user } }, "scope": scope } })
    );
    let trusted = Cloud { trust: Some("t1".to_owned()), ..password };
    assert_eq!(request(&trusted)["auth"]["scope"], json!({ "OS-TRUST:trust": { "id": "t1" } }));

    let token = cloud(Credentials::Token("gAAA".into()));
    let by_id = WantedProject { id: Some("p1".to_owned()), ..token.project.clone() };
    let token = Cloud { project: by_id, ..token };
    assert_eq!(
        request(&token),
        json!({ "auth": { "identity": { "methods": ["token"], "token": { "id": "gAAA" } }, "scope": { "project": { "id": "p1" } } } })
    );

    let with = |credential| cloud(Credentials::ApplicationCredential { credential, secret: "s".into() });
    let asked = |identity: Value| json!({ "auth": { "identity": { "methods": ["application_credential"], "application_credential": identity } } });
    assert_eq!(
        request(&with(ApplicationCredential::Id("ac".to_owned()))),
        asked(json!({ "id": "ac", "secret": "s" }))
    );
    assert_eq!(
        request(&with(ApplicationCredential::Name("ccm".to_owned(), User::Id("u1".to_owned())))),
        asked(json!({ "name": "ccm", "user": { "id": "u1" }, "secret": "s" })),
        "the request must not contain a scope"
    );
}

fn answer(token: &Value) -> VendorResponse {
    let answer = http::Response::builder().status(201).header("X-Subject-Token", "gAAA");
    answer.body(json!({ "token": token }).to_string().into()).expect("an answer")
}

fn token() -> Value {
    json!({
        "methods": ["password"],
        "issued_at": "2026-11-21T08:00:00.000000Z",
        "expires_at": "2026-11-21T09:00:00.000000Z",
        "project": { "id": "p1", "name": "shop", "domain": { "id": "default", "name": "Default" } },
        "catalog": [{ "id": "1", "type": "compute", "name": "nova", "endpoints": [
            { "id": "2", "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": "https://cloud.example/compute/v2.1" },
        ] }],
    })
}

#[tokio::test(start_paused = true)]
async fn token_lifetime_uses_keystones_clock() {
    let cloud = cloud(Credentials::Token("old".into()));
    let asked = Instant::now();
    let access = read(&cloud, &answer(&token()), asked).expect("good");
    assert_eq!(
        (access.renew_at - asked, access.ends_at - asked),
        (Duration::from_mins(48), Duration::from_mins(60))
    );
    assert_eq!(access.endpoints.base(Service::Compute).expect("there"), "https://cloud.example/compute/v2.1");
    assert!(!format!("{access:?}").contains("gAAA"));
}

#[test]
fn token_of_another_project_is_refused() {
    let found = || {
        Some(Project {
            id: "p1".to_owned(),
            name: "shop".to_owned(),
            domain: ProjectDomain { id: "default".to_owned(), name: "Default".to_owned() },
        })
    };
    let wanted = |id: Option<&str>, name: Option<&str>, domain: Option<Domain>| WantedProject {
        id: id.map(str::to_owned),
        name: name.map(str::to_owned),
        domain,
    };
    for good in [
        wanted(None, None, None),
        wanted(Some("p1"), None, None),
        wanted(Some("p1"), Some("shop"), Some(Domain::Name("Default".to_owned()))),
        wanted(None, Some("shop"), Some(Domain::Id("default".to_owned()))),
        wanted(Some("p1"), None, Some(Domain::Id("the domain of the user".to_owned()))),
    ] {
        assert_eq!(right(&good, found()), Ok(found().expect("one")), "{good:?}");
    }
    for bad in [
        wanted(Some("p2"), None, None),
        wanted(Some("p1"), Some("other"), None),
        wanted(None, Some("shop"), Some(Domain::Name("Other".to_owned()))),
    ] {
        assert_eq!(right(&bad, found()).expect_err("another").fault, Fault::Forbidden, "{bad:?}");
        assert_eq!(right(&bad, None).expect_err("none").fault, Fault::Forbidden);
    }
}

#[tokio::test]
async fn invalid_log_in_answer_is_nonsense() {
    let cloud = cloud(Credentials::Token("old".into()));
    let page = http::Response::new("<html>welcome</html>".into());
    let without_token = http::Response::new(json!({ "token": token() }).to_string().into());
    for answer in [page, without_token, answer(&json!({}))] {
        assert_eq!(read(&cloud, &answer, Instant::now()).expect_err("no token").fault, Fault::Nonsense);
    }
}
