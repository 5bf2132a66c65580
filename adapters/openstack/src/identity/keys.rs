//! The keys of a cloud in clouds.yaml or in the environment, and the errors in them.
//!
//! The keys follow the convention of OpenStack tools. Source: openstacksdk, "Configuring OpenStack SDK Applications".

use serde_json::{Map, Value};

const AUTH: [&str; 23] = [
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "auth_url",
    "default_domain_id",
    "default_domain_name",
    "domain_id",
    "domain_name",
    "password",
    "project_domain_id",
    "project_domain_name",
    "project_id",
    "project_name",
    "system_scope",
    "tenant_id",
    "tenant_name",
    "token",
    "trust_id",
    "user_domain_id",
    "user_domain_name",
    "user_id",
    "username",
    // The key of a one-time password. A user would have to type such a password.
    "passcode",
];
/// The keys outside the section `auth` that this adapter reads. Other tools have many more keys.
const CLOUD: [&str; 18] = [
    "auth",
    "auth_type",
    "cacert",
    "cert",
    "cloud",
    "compute_endpoint_override",
    "endpoint_type",
    "identity_api_version",
    "identity_endpoint_override",
    "insecure",
    "interface",
    "key",
    "load_balancer_endpoint_override",
    "network_endpoint_override",
    "profile",
    "region_name",
    "regions",
    "verify",
];
/// The maximum number of characters in which a mistyped key differs from the known key that errors suggest.
const TYPOS: usize = 2;

/// Where the keys come from, which determines how errors name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldPath {
    /// The environment, with keys such as `OS_USERNAME`.
    Environment,
    /// A file, with keys such as `clouds.prod.auth.username`.
    File { cloud: String },
}

impl FieldPath {
    fn name(&self, key: &str) -> String {
        match self {
            Self::Environment => format!("OS_{}", key.to_ascii_uppercase()),
            Self::File { cloud } if AUTH.contains(&key) => format!("clouds.{cloud}.auth.{key}"),
            Self::File { cloud } => format!("clouds.{cloud}.{key}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Keys {
    place: FieldPath,
    cloud: Map<String, Value>,
    auth: Map<String, Value>,
    faults: Vec<String>,
}

impl Keys {
    pub(crate) fn of_cloud(name: &str, mut cloud: Map<String, Value>) -> Self {
        let place = FieldPath::File { cloud: name.to_owned() };
        let mut faults = Vec::new();
        let auth = match cloud.remove("auth") {
            Some(Value::Object(auth)) => auth,
            None | Some(Value::Null) => Map::new(),
            Some(_) => {
                faults.push(format!("{}: must be a section of keys", place.name("auth")));
                Map::new()
            }
        };
        for key in auth.keys().filter(|key| !AUTH.contains(&key.as_str())) {
            let near = nearest(key)
                .map_or_else(|| ": remove it".to_owned(), |near| format!(", did you mean '{near}'?"));
            faults.push(format!("clouds.{name}.auth.{key}: unknown key{near}"));
        }
        for key in cloud.keys().filter(|key| AUTH.contains(&key.as_str())) {
            faults.push(format!(
                "clouds.{name}.{key}: must be in the section auth: write it as clouds.{name}.auth.{key}"
            ));
        }
        Self { place, cloud, auth, faults }.without_typos()
    }

    /// Reads the keys in the environment, where for example `OS_USERNAME` sets `username`.
    pub(crate) fn of_environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut auth, mut cloud) = (Map::new(), Map::new());
        for (name, value) in variables {
            let Some(key) = name.strip_prefix("OS_").map(str::to_ascii_lowercase) else { continue };
            let keys = if AUTH.contains(&key.as_str()) { &mut auth } else { &mut cloud };
            keys.insert(key, Value::String(value.to_owned()));
        }
        Self { place: FieldPath::Environment, cloud, auth, faults: Vec::new() }.without_typos()
    }

    fn without_typos(mut self) -> Self {
        for key in self.cloud.keys().filter(|key| !CLOUD.contains(&key.as_str())) {
            if let Some(near) = nearest(key).filter(|_| !AUTH.contains(&key.as_str())) {
                let (key, near) = (self.place.name(key), self.place.name(near));
                self.faults.push(format!("{key}: unknown key, did you mean '{near}'?"));
            }
        }
        self
    }

    /// Records an error in a key, with the cause and the fix.
    pub(crate) fn fault(&mut self, key: &str, text: &str) {
        self.faults.push(format!("{}: {text}", self.place.name(key)));
    }

    pub(crate) fn into_faults(self) -> Vec<String> {
        self.faults
    }

    /// Returns the value of a key that must be a string. An empty string counts as unset, as is usual in the environment.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text),
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) => {
                self.fault(key, "must be a string: put it in quotes");
                None
            }
            Value::Array(_) | Value::Object(_) => {
                self.fault(key, "must be a string: write a single word");
                None
            }
        }
    }

    /// Returns the value of a boolean key, or `None` if the key is not set.
    pub(crate) fn switch(&mut self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(on) => Some(on),
            Value::String(text) if text.is_empty() => None,
            Value::String(text) if ["true", "1", "yes"].contains(&&*text.to_ascii_lowercase()) => Some(true),
            Value::String(text) if ["false", "0", "no"].contains(&&*text.to_ascii_lowercase()) => Some(false),
            Value::Null => None,
            Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.fault(key, "must be true or false");
                None
            }
        }
    }

    pub(crate) fn value(&self, key: &str) -> Option<Value> {
        let keys = if AUTH.contains(&key) { &self.auth } else { &self.cloud };
        keys.get(key).cloned()
    }
}

/// Returns the most similar known key, if a known key is similar enough. Short known keys are skipped, because many words are similar to
/// them.
///
/// `telemetry::nearest` is less strict. It does not fit, because clouds.yaml also has keys of other tools, such as
/// `image_endpoint_override`, which are no mistakes.
fn nearest(key: &str) -> Option<&'static str> {
    let known = AUTH.iter().chain(&CLOUD).filter(|known| known.len() >= TYPOS * 3);
    let distance = |known: &&&str| strsim::osa_distance(key, known);
    known.min_by_key(distance).filter(|known| distance(known) <= TYPOS).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(cloud: Value) -> Keys {
        let Value::Object(cloud) = cloud else { panic!("auth without section") };
        Keys::of_cloud("prod", cloud)
    }

    #[test]
    fn unknown_key_is_reported_with_a_suggestion() {
        for (name, cloud, wanted) in [
            (
                "unknown key in auth",
                json!({"auth": {"pasword": "x"}}),
                "clouds.prod.auth.pasword: unknown key, did you mean 'password'?",
            ),
            (
                "no similar key",
                json!({"auth": {"colour": "x"}}),
                "clouds.prod.auth.colour: unknown key: remove it",
            ),
            (
                "unknown key beside auth",
                json!({"regionname": "x"}),
                "clouds.prod.regionname: unknown key, did you mean 'clouds.prod.region_name'?",
            ),
            (
                "misplaced",
                json!({"auth_url": "x"}),
                "clouds.prod.auth_url: must be in the section auth: write it as clouds.prod.auth.auth_url",
            ),
            ("auth", json!({"auth": "x"}), "clouds.prod.auth: must be a section of keys"),
        ] {
            assert_eq!(keys(cloud).into_faults(), [wanted], "{name}");
        }
        let others =
            json!({"volume_api_version": "3", "image_endpoint_override": "http://x", "dns_api_version": 2});
        assert_eq!(keys(others).into_faults(), [""; 0], "other tools have additional keys");
    }

    #[test]
    fn only_strings_are_accepted_as_text() {
        let mut read =
            keys(json!({"auth": {"password": 12_345, "username": "", "token": null}, "cacert": ["a"]}));
        for key in ["password", "username", "token", "cacert", "user_id"] {
            assert_eq!(read.text(key), None, "{key}");
        }
        assert_eq!(
            read.into_faults(),
            [
                "clouds.prod.auth.password: must be a string: put it in quotes",
                "clouds.prod.cacert: must be a string: write a single word"
            ]
        );
    }

    #[test]
    fn environment_has_the_same_keys_as_the_file() {
        let variables =
            [("OS_USERNAME", "demo"), ("OS_PASWORD", "x"), ("OS_INSECURE", "True"), ("HOME", "/")];
        let mut read = Keys::of_environment(variables);
        assert_eq!(read.text("username").as_deref(), Some("demo"));
        assert_eq!(read.switch("insecure"), Some(true));
        assert_eq!(read.into_faults(), ["OS_PASWORD: unknown key, did you mean 'OS_PASSWORD'?"]);
    }
}
