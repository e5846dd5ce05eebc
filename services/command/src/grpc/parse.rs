//! From wire messages to intents.

use likewise_domain::decide::Command;
use likewise_domain::id::{DeviceId, OperationId, UserId, VideoId};
use likewise_domain::operation;
use likewise_domain::relation::Cause;
use likewise_proto::command::v1::SetLikeRequest;
use likewise_proto::convert;
use sha2::{Digest as _, Sha256};

use super::Faults;
use crate::intent::{DEVICE_HASH_BYTES, Intent};

/// Keeps hashes of devices apart from hashes of other things.
const DEVICE_HASH_DOMAIN: &[u8] = b"likewise device\0";

/// A well-formed command as a device signs it: its fields, `-` for those that are not there.
pub(super) fn signed_line(message: &SetLikeRequest) -> String {
    fn or_none(value: Option<impl ToString>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
    format!(
        "{} {} {} {} {} {}",
        message.video_id,
        message.desired_state,
        message.operation_id,
        or_none(message.base_version),
        or_none(message.device_id.as_deref()),
        or_none(message.client_sequence),
    )
}

/// The command of a user; faults are added with `prefix` before the names of fields.
pub(super) fn intent(
    user_id: &UserId,
    message: &SetLikeRequest,
    require_dated_ids: bool,
    prefix: &str,
    faults: &mut Faults,
) -> Option<Intent> {
    let field = |name: &str| format!("{prefix}{name}");
    let video_id = faults.id(&field("video_id"), VideoId::parse(&message.video_id));
    let operation_id = faults.id(&field("operation_id"), OperationId::parse(&message.operation_id));
    let desired_state = convert::parse_like_state(message.desired_state);
    if desired_state.is_none() {
        faults.add(&field("desired_state"), "must be LIKED or UNLIKED");
    }
    let device = match message.device_id.as_deref() {
        None => None,
        Some(id) => Some(faults.id(&field("device_id"), DeviceId::parse(id))?),
    };
    let operation_id = operation_id?;
    if operation::is_reserved(&operation_id) {
        faults.add(&field("operation_id"), "must not begin with \"lw:\"");
        return None;
    }
    let dated = operation::dated(&operation_id);
    if require_dated_ids && dated.is_none() {
        faults.add(&field("operation_id"), "must be a UUIDv7");
        return None;
    }
    Some(Intent {
        user_id: user_id.clone(),
        operation_id,
        command: Command {
            video_id: video_id?,
            desired_state: desired_state?,
            dated,
            base_version: message.base_version,
            refusal: None,
            cause: Cause::User,
        },
        client_sequence: message.client_sequence,
        device_hash: device.as_ref().map(device_hash),
    })
}

fn device_hash(device: &DeviceId) -> [u8; DEVICE_HASH_BYTES] {
    let hash: [u8; 32] = Sha256::new().chain_update(DEVICE_HASH_DOMAIN).chain_update(device.expose()).finalize().into();
    let mut kept = [0; DEVICE_HASH_BYTES];
    kept.copy_from_slice(&hash[..DEVICE_HASH_BYTES]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv_27_a_device_is_kept_as_a_hash_only() {
        let device = DeviceId::parse("device-a").expect("an id");
        assert_eq!(device_hash(&device), device_hash(&device));
        assert_ne!(device_hash(&device), device_hash(&DeviceId::parse("device-b").expect("an id")));
        assert!(!device_hash(&device).windows(3).any(|part| b"device-a".windows(3).any(|other| other == part)));
    }
}
