//! Changes of accounts, blocks and follows.

use time::Duration;

use super::tell;
use crate::act::{Done, Error, Moderator, Refusal};
use crate::model::{Account, AccountState, Event, LikesVisible};
use crate::store::Txn;
use crate::transitions::{Who, account_may, within_grace};

async fn known(txn: &Txn<'_>, user: &str) -> Result<Account, Error> {
    Ok(txn.account(user).await?.ok_or_else(|| Refusal::NoAccount(user.to_owned()))?)
}

pub(super) async fn active(txn: &Txn<'_>, user: &str) -> Result<Account, Error> {
    let account = known(txn, user).await?;
    if account.state == AccountState::Active { Ok(account) } else { Err(Refusal::AccountNotActive.into()) }
}

/// Stores the changed account under the next version and tells of it.
async fn store(txn: &Txn<'_>, mut account: Account) -> Result<Account, Error> {
    account.version += 1;
    let seq = txn.next_seq().await?;
    txn.store_account(&account, seq).await?;
    tell(txn, seq, &Event::Account(account.clone())).await?;
    Ok(account)
}

pub(super) async fn register(txn: &Txn<'_>, user: &str, username: &str) -> Result<Done, Error> {
    if let Some(account) = txn.account(user).await? {
        // A repeated call; a deleted account is restored, not opened again.
        return match account.state {
            AccountState::Deleted => Err(Refusal::AccountNotActive.into()),
            _ => Ok(Done::Account(account)),
        };
    }
    if txn.username_taken(username, user).await? {
        return Err(Refusal::UsernameTaken.into());
    }
    let account = Account {
        user_id: user.to_owned(),
        username: username.to_owned(),
        state: AccountState::Active,
        is_private: false,
        listable: true,
        likes_visible: LikesVisible::Nobody,
        version: likewise_domain::relation::effective_version(0, txn.epoch),
        deleted_at: None,
        restore_state: None,
    };
    Ok(Done::Account(store(txn, account).await?))
}

pub(super) async fn set_privacy(
    txn: &Txn<'_>,
    user: &str,
    is_private: Option<bool>,
    likes_visible: Option<LikesVisible>,
) -> Result<Done, Error> {
    let before = active(txn, user).await?;
    let after = Account {
        is_private: is_private.unwrap_or(before.is_private),
        likes_visible: likes_visible.unwrap_or(before.likes_visible),
        ..before.clone()
    };
    if after == before {
        return Ok(Done::Account(before));
    }
    Ok(Done::Account(store(txn, after).await?))
}

fn moved(txn: &Txn<'_>, before: &Account, to: AccountState) -> Account {
    let deleted = to == AccountState::Deleted;
    Account {
        state: to,
        deleted_at: deleted.then_some(txn.now),
        restore_state: deleted.then_some(before.state),
        ..before.clone()
    }
}

fn transition(who: Who, before: &Account, to: AccountState) -> Result<(), Refusal> {
    if account_may(who, before.state, to) {
        return Ok(());
    }
    Err(Refusal::Transition(format!("{:?}", before.state), format!("{to:?}")))
}

pub(super) async fn set_own_state(txn: &Txn<'_>, user: &str, to: AccountState) -> Result<Done, Error> {
    let before = known(txn, user).await?;
    if before.state == to {
        return Ok(Done::Account(before));
    }
    transition(Who::Owner, &before, to)?;
    Ok(Done::Account(store(txn, moved(txn, &before, to)).await?))
}

pub(super) async fn restore(txn: &Txn<'_>, user: &str, grace: Duration) -> Result<Done, Error> {
    let before = known(txn, user).await?;
    let (Some(deleted_at), Some(to)) = (before.deleted_at, before.restore_state) else {
        return Ok(Done::Account(before));
    };
    if !within_grace(deleted_at, txn.now, grace) {
        return Err(Refusal::GraceOver.into());
    }
    if txn.username_taken(&before.username, user).await? {
        return Err(Refusal::UsernameTaken.into());
    }
    Ok(Done::Account(store(txn, moved(txn, &before, to)).await?))
}

pub(super) async fn set_state(txn: &Txn<'_>, user: &str, to: AccountState, by: &Moderator) -> Result<Done, Error> {
    let before = known(txn, user).await?;
    if before.state == to {
        return Ok(Done::Account(before));
    }
    transition(Who::Moderator, &before, to)?;
    let after = store(txn, moved(txn, &before, to)).await?;
    let kind = if to == AccountState::Banned { "BAN_ACCOUNT" } else { "LIFT_BAN" };
    txn.record_act(kind, user, &by.actor, &by.reason, after.version).await?;
    Ok(Done::Account(after))
}

pub(super) async fn set_listable(txn: &Txn<'_>, user: &str, listable: bool, by: &Moderator) -> Result<Done, Error> {
    let before = known(txn, user).await?;
    if before.listable == listable {
        return Ok(Done::Account(before));
    }
    let after = store(txn, Account { listable, ..before }).await?;
    txn.record_act("SET_LISTABLE", user, &by.actor, &by.reason, after.version).await?;
    Ok(Done::Account(after))
}

/// Both accounts' sets change, and both are told of: whoever caches one of them has to look again.
pub(super) async fn block(txn: &Txn<'_>, by: &str, other: &str, on: bool) -> Result<Done, Error> {
    if by == other {
        return Err(Refusal::Oneself.into());
    }
    active(txn, by).await?;
    known(txn, other).await?;
    let changed = if on { txn.add_block(by, other).await? } else { txn.remove_block(by, other).await? };
    if changed {
        for user in [by, other] {
            let version = txn.bump_block_set(user).await?;
            let seq = txn.next_seq().await?;
            tell(txn, seq, &Event::BlockSet { user_id: user.to_owned(), version }).await?;
        }
    }
    Ok(Done::Nothing)
}

pub(super) async fn follow(txn: &Txn<'_>, by: &str, other: &str, on: bool) -> Result<Done, Error> {
    if by == other {
        return Err(Refusal::Oneself.into());
    }
    active(txn, by).await?;
    known(txn, other).await?;
    let (version, lives) = txn.follow(by, other).await?;
    if lives != on {
        txn.store_follow(by, other, version + 1, on).await?;
    }
    Ok(Done::Nothing)
}
