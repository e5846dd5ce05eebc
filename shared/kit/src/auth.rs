//! Who is calling: a token is verified once at the edge, and what it says travels in the request's extensions.
//!
//! Promises: a caller acts only as the subject of a token that is signed by a key of the key file, with the algorithm
//! that the *key* states, issued for us, and in time. A token of an end user never passes as a service's or an
//! operator's, nor the other way round. No token text reaches a log line, a label or an error.
//!
//! Never: trusts a header or a field of a message for identity.

mod keys;
mod mint;
mod proof;
mod verify;

use tonic::{Request, Status};

pub use keys::Error as KeyError;
pub use mint::{Error as MintError, ServiceTokens};
pub use proof::{DeviceKey, Proof, ProofPolicy, ProofRule, SIGNATURE_KEY, TIME_KEY, signed_text};
pub use verify::Verifier;

use crate::errors;

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sees operational state. Every operator may.
    Viewer,
    /// Starts and stops operations.
    Operator,
    /// Approves what others requested; does not include [`Role::Operator`].
    Approver,
}

impl Role {
    /// As in the claim `roles`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator, Self::Approver].into_iter().find(|role| role.as_str() == text)
    }
}

/// What a verified token of an end user says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserClaims {
    /// The user id.
    pub sub: String,
    /// The key of the device it was given to, if it names one.
    pub device_key: Option<DeviceKey>,
}

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Nobody said.
    Anonymous,
    /// An end user.
    User(UserClaims),
    /// Another service of this system.
    Service {
        /// Its name.
        name: String,
    },
    /// A person who operates this system.
    Operator {
        /// Subject of the token.
        name: String,
        /// Roles we know, at least one.
        roles: Vec<Role>,
    },
}

/// Who calls; [`Identity::Anonymous`] when the request did not come through the server of [`crate::run`].
pub fn identity<T>(request: &Request<T>) -> &Identity {
    request.extensions().get().unwrap_or(&Identity::Anonymous)
}

fn missing() -> Status {
    errors::unauthenticated("TOKEN_MISSING", "this call needs a bearer token")
}

/// The user who calls.
///
/// # Errors
/// UNAUTHENTICATED TOKEN_MISSING for anonymous callers, PERMISSION_DENIED ROLE_REQUIRED for services and operators.
pub fn user<T>(request: &Request<T>) -> Result<String, Status> {
    user_or_anonymous(request)?.ok_or_else(missing)
}

/// What the token of the user who calls says.
///
/// # Errors
/// As [`user`].
pub fn user_claims<T>(request: &Request<T>) -> Result<&UserClaims, Status> {
    match identity(request) {
        Identity::User(claims) => Ok(claims),
        Identity::Anonymous => Err(missing()),
        Identity::Service { .. } | Identity::Operator { .. } => Err(errors::role_required("the token of an end user")),
    }
}

/// The user who calls, if there is one.
///
/// # Errors
/// PERMISSION_DENIED ROLE_REQUIRED for services and operators.
pub fn user_or_anonymous<T>(request: &Request<T>) -> Result<Option<String>, Status> {
    match identity(request) {
        Identity::Anonymous => Ok(None),
        Identity::User(claims) => Ok(Some(claims.sub.clone())),
        Identity::Service { .. } | Identity::Operator { .. } => Err(errors::role_required("the token of an end user")),
    }
}

/// The service that calls.
///
/// # Errors
/// UNAUTHENTICATED for anonymous callers, PERMISSION_DENIED for everybody else who is no service.
pub fn service<T>(request: &Request<T>) -> Result<String, Status> {
    match identity(request) {
        Identity::Service { name } => Ok(name.clone()),
        Identity::Anonymous => Err(missing()),
        Identity::User(_) | Identity::Operator { .. } => Err(errors::role_required("the token of a service")),
    }
}

/// The operator who calls, if the role is among theirs.
///
/// # Errors
/// UNAUTHENTICATED for anonymous callers, PERMISSION_DENIED for everybody else without the role.
pub fn operator<T>(request: &Request<T>, role: Role) -> Result<String, Status> {
    match identity(request) {
        Identity::Anonymous => Err(missing()),
        Identity::Operator { name, roles } if role == Role::Viewer || roles.contains(&role) => Ok(name.clone()),
        _ => Err(errors::role_required(&format!("the role {}", role.as_str()))),
    }
}

/// The service that calls, or the operator who does, if the role is among theirs.
///
/// # Errors
/// UNAUTHENTICATED for anonymous callers, PERMISSION_DENIED for end users and operators without the role.
pub fn service_or_operator<T>(request: &Request<T>, role: Role) -> Result<String, Status> {
    match identity(request) {
        Identity::Service { name } => Ok(name.clone()),
        _ => operator(request, role),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(identity: Identity) -> Request<()> {
        let mut request = Request::new(());
        request.extensions_mut().insert(identity);
        request
    }

    fn told(result: Result<String, Status>) -> String {
        result.unwrap_or_else(|status| errors::reason(&status).expect("a reason"))
    }

    #[test]
    fn inv_26_each_kind_of_caller_passes_only_as_what_it_is() {
        let anonymous = Request::new(());
        let user_call = request(Identity::User(UserClaims { sub: "alice".to_owned(), device_key: None }));
        let service_call = request(Identity::Service { name: "query".to_owned() });
        let viewer = request(Identity::Operator { name: "vera".to_owned(), roles: vec![Role::Viewer] });
        let approver = request(Identity::Operator { name: "ada".to_owned(), roles: vec![Role::Approver] });

        let all = [&anonymous, &user_call, &service_call, &viewer, &approver];
        let each = |ask: fn(&Request<()>) -> Result<String, Status>| all.map(|call| told(ask(call)));
        let (missing, role) = ("TOKEN_MISSING", "ROLE_REQUIRED");
        assert_eq!(each(user), [missing, "alice", role, role, role]);
        assert_eq!(each(service), [missing, role, "query", role, role]);
        assert_eq!(each(|call| operator(call, Role::Viewer)), [missing, role, role, "vera", "ada"]);
        assert_eq!(each(|call| operator(call, Role::Operator)), [missing, role, role, role, role]);
        assert_eq!(each(|call| operator(call, Role::Approver)), [missing, role, role, role, "ada"]);
        assert_eq!(each(|call| service_or_operator(call, Role::Viewer)), [missing, role, "query", "vera", "ada"]);
        assert_eq!(user_or_anonymous(&anonymous).expect("allowed"), None);
    }
}
