//! Formats errors of the kube client for users.

use std::{error::Error, iter::successors};

use kube::client::AuthError;

/// Formats an error with its causes, each of them once, and without secrets. The messages of kube include only the first cause.
#[must_use]
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let all = || successors(Some(error), |error| (*error).source());
    if let Some(words) = all().find_map(without_secrets) {
        return words;
    }
    all().skip(1).fold(error.to_string(), |text, cause| {
        let words = cause.to_string();
        if text.contains(&words) { text } else { format!("{text}: {words}") }
    })
}

/// Returns a replacement text for errors that would reveal secrets, or else `None`. kube prints the input and output of credential plugins
/// and the passwords of proxies.
#[must_use]
pub fn without_secrets(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(
        kube::Error::ProxyProtocolUnsupported { proxy_url }
        | kube::Error::ProxyProtocolDisabled { proxy_url, .. },
    ) = error.downcast_ref()
    {
        let (scheme, host) = (proxy_url.scheme_str().unwrap_or("http"), proxy_url.host().unwrap_or_default());
        return Some(format!("proxy-url {scheme}://{host}: proxies are not supported; remove this setting"));
    }
    let auth: &AuthError = error.downcast_ref()?;
    if let AuthError::AuthExecRun { out, .. } = auth {
        return Some(format!("the credential plugin of the kubeconfig failed: {}", out.status));
    }
    let words = if let AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) = auth {
        "the credential plugin of the kubeconfig printed no ExecCredential"
    } else if let AuthError::MalformedTokenExpirationDate(_) = auth {
        "the credentials of the kubeconfig have an invalid expiration time"
    } else if let AuthError::AuthExec(_) = auth {
        "the auth-provider of the kubeconfig returned no credentials: use a credential plugin"
    } else {
        return None;
    };
    Some(words.to_owned())
}
