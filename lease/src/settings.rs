//! The names of the Lease, the identity of this process, and the durations. All are validated before the first request.

use std::time::Duration;

/// The maximum length of an identity, in bytes. The length is limited because users read identities, and because standbys find the leader's
/// address in the identity.
const IDENTITY_MAX: usize = 256;
/// The maximum lengths of names and namespaces, as in RFC 1123 and in Kubernetes.
const NAME_MAX: usize = 253;
const NAMESPACE_MAX: usize = 63;

/// The Lease and the identity of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The unique identity of this process. This is the Lease's `holderIdentity` while this process leads.
    pub identity: String,
    /// The durations of the election, which must be the same for all candidates.
    pub timing: Timing,
}

/// The durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time for which a held lease must stay unchanged before another candidate may take the lease.
    pub duration: Duration,
    /// The time after the start of a renewal for which the leader relies on the lease.
    pub renew_deadline: Duration,
    /// Interval between renewals, and between a standby's reads.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(6),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// Returns the timeout of a request to the API server. It is half of the renewal deadline, so that a second request can be sent in time
    /// if an answer is lost. client-go sets this timeout in the same way (resourcelock, `NewFromKubeconfig`).
    #[must_use]
    pub fn call_limit(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Returns the interval between the reads of a standby with a watch. The interval is short enough for the last observation to remain
    /// valid.
    pub(crate) fn watched(&self) -> Duration {
        self.retry.max(self.renew_deadline / 2)
    }

    /// Returns the duration in whole seconds, rounded up, as in a Lease.
    pub(crate) fn whole_seconds(&self) -> u64 {
        self.duration.as_secs() + u64::from(self.duration.subsec_nanos() > 0)
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fix}")]
pub struct SettingsError {
    /// The field.
    pub field: &'static str,
    /// The error and the expected value.
    pub fix: String,
}

impl Settings {
    /// Validates all settings that the API server would refuse later, or whose errors no later check would detect.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |field, fix: String| Err(SettingsError { field, fix });
        if !is_name(&self.namespace, NAMESPACE_MAX) || self.namespace.contains('.') {
            return wrong("namespace", format!("invalid value {:?}: use a-z, 0-9 and -", self.namespace));
        }
        if !is_name(&self.name, NAME_MAX) {
            return wrong("name", format!("invalid value {:?}: use a-z, 0-9, - and .", self.name));
        }
        let printable = self.identity.chars().all(|char| char.is_ascii_graphic());
        if self.identity.is_empty() || self.identity.len() > IDENTITY_MAX || !printable {
            let fix = format!(
                "invalid value {:?}: use 1 to {IDENTITY_MAX} visible ASCII characters",
                self.identity
            );
            return wrong("identity", fix);
        }
        self.timing.check()
    }
}

impl Timing {
    /// Validates the durations. The factor of 1.2 is the jitter of client-go (leaderelection.go, `NewLeaderElector`).
    fn check(&self) -> Result<(), SettingsError> {
        let wrong = |field, fix: String| Err(SettingsError { field, fix });
        if self.retry.is_zero() || self.retry * 6 / 5 >= self.renew_deadline {
            let fix = format!(
                "invalid value {:?}: must be above 0, and less than the renew deadline divided by 1.2",
                self.retry
            );
            return wrong("timing.retry", fix);
        }
        if self.renew_deadline >= self.duration {
            let fix =
                format!("invalid value {:?}: must be less than the lease's duration", self.renew_deadline);
            return wrong("timing.renew_deadline", fix);
        }
        if i32::try_from(self.whole_seconds()).is_err() {
            return wrong(
                "timing.duration",
                format!("invalid value {:?}: is longer than a Lease can express", self.duration),
            );
        }
        Ok(())
    }
}

fn is_name(text: &str, max: usize) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= max
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            namespace: "kube-system".into(),
            name: "cloud-adapter".into(),
            identity: "17f@10.0.0.1:8443".into(),
            timing: Timing::default(),
        }
    }

    #[test]
    fn invalid_settings_are_named_with_their_field() {
        assert_eq!(settings().check(), Ok(()));
        let secs = Duration::from_secs;
        let timing = Timing::default();
        for (field, wrong) in [
            ("namespace", Settings { namespace: String::new(), ..settings() }),
            ("namespace", Settings { namespace: "kube.system".into(), ..settings() }),
            ("namespace", Settings { namespace: "n".repeat(64), ..settings() }),
            ("name", Settings { name: "../pods".into(), ..settings() }),
            ("name", Settings { name: "Lease".into(), ..settings() }),
            ("name", Settings { name: "-a".into(), ..settings() }),
            ("identity", Settings { identity: String::new(), ..settings() }),
            ("identity", Settings { identity: "a b".into(), ..settings() }),
            ("identity", Settings { identity: "a\nb".into(), ..settings() }),
            ("identity", Settings { identity: "x".repeat(257), ..settings() }),
            ("timing.retry", Settings { timing: Timing { retry: secs(0), ..timing }, ..settings() }),
            ("timing.retry", Settings { timing: Timing { retry: secs(5), ..timing }, ..settings() }),
            (
                "timing.renew_deadline",
                Settings { timing: Timing { renew_deadline: secs(10), ..timing }, ..settings() },
            ),
            (
                "timing.duration",
                Settings { timing: Timing { duration: secs(u64::from(u32::MAX)), ..timing }, ..settings() },
            ),
        ] {
            assert_eq!(wrong.check().map_err(|error| error.field), Err(field), "{wrong:?}");
        }
    }

    #[test]
    fn what_client_go_takes_is_taken() {
        for (duration, renew_deadline, retry) in
            [(15_000, 10_000, 6000), (15_000, 10_000, 8333), (10_500, 10_400, 1), (900, 800, 100)]
        {
            let [duration, renew_deadline, retry] =
                [duration, renew_deadline, retry].map(Duration::from_millis);
            let timing = Timing { duration, renew_deadline, retry };
            assert_eq!(Settings { timing, ..settings() }.check(), Ok(()), "{timing:?}");
            assert!(timing.whole_seconds() > 0, "the API server does not accept 0");
        }
    }
}
