//! The configuration of a cloud and its credentials. This module validates the keys and reports all errors at once, each with its key and
//! the fix.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf};

use http::Uri;
use secrecy::SecretString;
use serde_json::Value;

use super::{
    catalogue::{Interface, Service},
    keys::Keys,
};

/// Values of flags, which take precedence over the keys of the file or environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) region: Option<String>,
    pub(crate) interface: Option<Interface>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cloud {
    /// The address of Keystone, including the version.
    pub(crate) auth_url: String,
    pub(crate) credentials: Credentials,
    pub(crate) project: WantedProject,
    /// The ID of a trust, which determines the project.
    pub(crate) trust: Option<String>,
    pub(crate) region: String,
    pub(crate) interface: Interface,
    /// Addresses that replace those of the catalogue.
    pub(crate) overrides: BTreeMap<Service, String>,
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) enum Credentials {
    Password { user: User, password: SecretString },
    Token(SecretString),
    ApplicationCredential { credential: ApplicationCredential, secret: SecretString },
}

impl Credentials {
    pub(crate) fn secret(&self) -> &SecretString {
        match self {
            Self::Password { password: secret, .. }
            | Self::Token(secret)
            | Self::ApplicationCredential { secret, .. } => secret,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApplicationCredential {
    Id(String),
    /// An application credential by name. The name is unique for each user.
    Name(String, User),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Id(String),
    /// A user by name. The name is unique within a domain.
    Name(String, Domain),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Id(String),
    Name(String),
}

/// The project that the token must be for. Fields are set only if the keys name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedProject {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) domain: Option<Domain>,
}

impl Cloud {
    pub(crate) fn read(mut keys: Keys, given: &Given) -> Result<Self, Vec<String>> {
        refuse(&mut keys);
        let auth_url = auth_url(&mut keys);
        let trust = keys.text("trust_id");
        let credentials = credentials(&mut keys);
        let project = project(&mut keys);
        if !matches!(credentials, None | Some(Credentials::ApplicationCredential { .. })) && trust.is_none() {
            in_a_project(&project, &mut keys);
        }
        let region = region(&mut keys, given);
        let interface = interface(&mut keys, given);
        let mut overrides = overrides(&mut keys);
        if let Some(auth_url) = &auth_url {
            // By default, tokens are validated by Keystone at `auth_url`.
            overrides.entry(Service::Identity).or_insert_with(|| auth_url.clone());
        }
        let ca = keys.text("cacert").map(PathBuf::from);
        match (auth_url, credentials, region, keys.into_faults()) {
            (Some(auth_url), Some(credentials), Some(region), faults) if faults.is_empty() => {
                Ok(Self { auth_url, credentials, project, trust, region, interface, overrides, ca })
            }
            (_, _, _, faults) => Err(faults),
        }
    }
}

/// Reports settings that other tools support and this adapter does not support.
fn refuse(keys: &mut Keys) {
    let unchecked =
        "the credentials could be sent to an impostor: remove it, and set cacert to the CA certificates";
    if keys.switch("verify") == Some(false) {
        keys.fault("verify", unchecked);
    }
    if keys.switch("insecure") == Some(true) {
        keys.fault("insecure", unchecked);
    }
    let one_project = "the adapter works in one project: remove it, and set project_id";
    for (key, text) in [
        ("cert", "client certificates are not supported: remove it"),
        ("key", "client certificates are not supported: remove it"),
        ("profile", "vendor profiles are not supported: set auth_url and region_name here"),
        ("cloud", "vendor profiles are not supported: set auth_url and region_name here"),
        ("passcode", "a second factor needs user input: use an application credential"),
        ("system_scope", one_project),
        ("domain_id", one_project),
        ("domain_name", one_project),
    ] {
        if keys.text(key).is_some() {
            keys.fault(key, text);
        }
    }
    let version = keys.value("identity_api_version").map(|version| match version {
        Value::String(text) => text,
        version @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            version.to_string()
        }
    });
    if version.is_some_and(|version| !["", "3", "3.0", "v3"].contains(&version.as_str())) {
        keys.fault("identity_api_version", "only 3 is supported: remove it");
    }
}

fn auth_url(keys: &mut Keys) -> Option<String> {
    let Some(text) = keys.text("auth_url") else {
        keys.fault(
            "auth_url",
            "is missing: set it to the address of Keystone, such as https://cloud.example:5000/v3",
        );
        return None;
    };
    if text.trim_end_matches('/').ends_with("/v2.0") {
        keys.fault("auth_url", "ends in /v2.0, a version that Keystone no longer has: end it in /v3");
        return None;
    }
    url(keys, "auth_url", &text).map(|url| Service::Identity.base(&url))
}

/// Validates the address of an HTTP server.
fn url(keys: &mut Keys, key: &str, text: &str) -> Option<String> {
    let uri: Option<Uri> = text.parse().ok();
    let fits = |uri: &Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
    };
    if uri.as_ref().is_some_and(fits) {
        return Some(text.trim_end_matches('/').to_owned());
    }
    keys.fault(key, "invalid address of an HTTP server: write it as https://cloud.example:5000/v3");
    None
}

/// Reads the credentials. If the type of the credentials is not set, the keys that are present determine the type.
fn credentials(keys: &mut Keys) -> Option<Credentials> {
    const SECRETS: [(&str, &str); 3] = [
        ("application_credential_secret", "v3applicationcredential"),
        ("token", "token"),
        ("password", "password"),
    ];
    let found: Vec<(&str, &str, String)> =
        SECRETS.iter().filter_map(|(key, kind)| Some((*key, *kind, keys.text(key)?))).collect();
    let reported = keys.text("auth_type");
    let reported = reported.as_deref().map(|reported| {
        reported
            .strip_prefix("v3")
            .filter(|rest| SECRETS.iter().any(|(_, kind)| kind == rest))
            .unwrap_or(reported)
    });
    if let Some(reported) = reported.filter(|reported| SECRETS.iter().all(|(_, kind)| kind != reported)) {
        let text = format!("unsupported type {reported}: use password, token or v3applicationcredential");
        keys.fault("auth_type", &text);
        return None;
    }
    let (mut fitting, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, kind, _)| reported.is_none_or(|reported| reported == *kind));
    for (key, ..) in others.iter().chain(fitting.iter().skip(1)) {
        let beside = fitting.first().map_or("auth_type", |(key, ..)| key);
        keys.fault(key, &format!("conflicts with {beside}: keep only one"));
    }
    fitting.truncate(1);
    let Some((_, kind, secret)) = fitting.pop() else {
        let key = SECRETS.iter().find(|(_, kind)| reported == Some(kind)).map_or("password", |(key, _)| key);
        keys.fault(key, "is missing: set a password, a token or an application credential with its secret");
        return None;
    };
    match kind {
        "password" => Some(Credentials::Password { user: user(keys)?, password: secret.into() }),
        "token" => Some(Credentials::Token(secret.into())),
        _ => Some(Credentials::ApplicationCredential {
            credential: application_credential(keys)?,
            secret: secret.into(),
        }),
    }
}

fn application_credential(keys: &mut Keys) -> Option<ApplicationCredential> {
    if keys.text("trust_id").is_some() {
        keys.fault(
            "trust_id",
            "conflicts with the application credential, which has its own project: remove one",
        );
    }
    if let Some(id) = keys.text("application_credential_id") {
        return Some(ApplicationCredential::Id(id));
    }
    let Some(name) = keys.text("application_credential_name") else {
        keys.fault(
            "application_credential_id",
            "is missing, as is application_credential_name: set one of them",
        );
        return None;
    };
    Some(ApplicationCredential::Name(name, user(keys)?))
}

fn user(keys: &mut Keys) -> Option<User> {
    if let Some(id) = keys.text("user_id") {
        return Some(User::Id(id));
    }
    let Some(name) = keys.text("username") else {
        keys.fault("username", "is missing, as is user_id: set one of them");
        return None;
    };
    let Some(domain) = domain(keys, ["user_domain_id", "user_domain_name"]) else {
        keys.fault(
            "user_domain_name",
            "is missing: user names are unique within a domain only; the domain is often Default",
        );
        return None;
    };
    Some(User::Name(name, domain))
}

fn domain(keys: &mut Keys, [id, name]: [&str; 2]) -> Option<Domain> {
    let own = keys.text(id).map(Domain::Id).or_else(|| keys.text(name).map(Domain::Name));
    own.or_else(|| keys.text("default_domain_id").map(Domain::Id))
        .or_else(|| keys.text("default_domain_name").map(Domain::Name))
}

/// `tenant` is the former name of a project.
fn project(keys: &mut Keys) -> WantedProject {
    let mut either = |key: &str, older: &str| {
        let (new, old) = (keys.text(key), keys.text(older));
        if new.is_some() && old.is_some() && new != old {
            keys.fault(older, &format!("differs from {key}: remove it"));
        }
        new.or(old)
    };
    let (id, name) = (either("project_id", "tenant_id"), either("project_name", "tenant_name"));
    WantedProject { id, name, domain: domain(keys, ["project_domain_id", "project_domain_name"]) }
}

/// Requires a project in the configuration, because passwords and tokens may be valid for several projects.
fn in_a_project(project: &WantedProject, keys: &mut Keys) {
    match project {
        WantedProject { id: Some(_), .. } | WantedProject { name: Some(_), domain: Some(_), .. } => (),
        WantedProject { name: Some(_), .. } => {
            keys.fault(
                "project_domain_name",
                "is missing: project names are unique within a domain only; the domain is often Default",
            );
        }
        WantedProject { .. } => keys.fault("project_id", "is missing, as is project_name: set one of them"),
    }
}

fn region(keys: &mut Keys, given: &Given) -> Option<String> {
    if let Some(region) = given.region.clone().or_else(|| keys.text("region_name")) {
        return Some(region);
    }
    let regions = match keys.value("regions") {
        Some(Value::Array(regions)) => regions,
        Some(_) | None => Vec::new(),
    };
    // A region is given as a name, or as a section with a name and the region's own settings.
    let name = |region: &Value| region.get("name").unwrap_or(region).as_str().map(str::to_owned);
    match regions.as_slice() {
        [region] if region.is_string() => name(region),
        [] => {
            keys.fault(
                "region_name",
                "is missing: set it, or adapter.openstack.region of the chart (--region)",
            );
            None
        }
        _ => {
            let names: Vec<String> = regions.iter().filter_map(name).collect();
            keys.fault(
                "regions",
                &format!(
                    "select one with adapter.openstack.region of the chart (--region): {}",
                    names.join(", ")
                ),
            );
            None
        }
    }
}

fn interface(keys: &mut Keys, given: &Given) -> Interface {
    if let Some(interface) = given.interface {
        return interface;
    }
    for key in ["interface", "endpoint_type"] {
        let Some(text) = keys.text(key) else { continue };
        match Interface::read(&text) {
            Some(interface) => return interface,
            None => keys.fault(key, "invalid interface: use public, internal or admin"),
        }
    }
    Interface::default()
}

fn overrides(keys: &mut Keys) -> BTreeMap<Service, String> {
    let reported = Service::ALL.into_iter().filter_map(|service| {
        let key = service.override_key();
        let text = keys.text(key)?;
        Some((service, url(keys, key, &text)?))
    });
    reported.collect()
}
