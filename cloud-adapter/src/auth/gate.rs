//! Authenticates and authorises a call before its body is read.

use cloud_api_proto::AdapterError;
use http::{Extensions, HeaderMap};

use crate::auth::{
    Bearers, Caller, Identities, Role, ServiceAccount,
    bearer::unauthenticated,
    connection::Peer,
    refusals::Refusals,
    rules::{allows, forbidden},
};

/// How callers are authenticated.
#[derive(Debug)]
pub enum Authentication {
    /// Callers are not authenticated: every caller may call every method.
    None,
    /// Callers send a ServiceAccount token in each call.
    Bearer(Box<Bearers>),
    /// Callers use a client certificate, which the TLS handshake verified.
    Certificate,
}

/// Admits calls to the services.
#[derive(Debug)]
pub struct Gate {
    authentication: Authentication,
    identities: Identities,
    refusals: Refusals,
}

impl Gate {
    /// Creates the gate from its rules.
    #[must_use]
    pub fn new(authentication: Authentication, identities: Identities, refusals: Refusals) -> Self {
        Self { authentication, identities, refusals }
    }

    pub(crate) async fn admit(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, AdapterError> {
        let account = match &self.authentication {
            Authentication::None => return Ok(Caller::anyone()),
            Authentication::Bearer(bearers) => bearers.check(headers).await,
            Authentication::Certificate => certificate(extensions),
        };
        let account = account.inspect_err(|error| self.refusals.note(None, path, error))?;
        let subject = account.to_string().into();
        let Some(role) = self.identities.role(&account) else {
            let stranger = Caller { role: Role::Anyone, subject };
            let error = forbidden(&stranger, "has no role in this adapter's --identity flags");
            self.refusals.note(None, path, &error);
            return Err(error);
        };
        let caller = Caller { role, subject };
        if allows(role, path) {
            return Ok(caller);
        }
        let error = forbidden(&caller, &format!("the role {} may not call this method", role.word()));
        self.refusals.note(Some(&caller), path, &error);
        Err(error)
    }
}

fn certificate(extensions: &Extensions) -> Result<ServiceAccount, AdapterError> {
    let peer = extensions.get::<Peer>();
    let account = peer.and_then(|peer| peer.account.clone());
    account
        .unwrap_or_else(|| Err("the connection has no client certificate".to_owned()))
        .map_err(unauthenticated)
}
