//! Changes of videos.

use time::Duration;

use super::tell;
use crate::act::{Done, Error, Moderator, NewPost, PostChanges, Refusal};
use crate::model::{Event, Post, PostStatus};
use crate::store::Txn;
use crate::transitions::{Who, post_may, within_grace};

/// Stores the changed video under the next version and tells of it.
async fn store(txn: &Txn<'_>, mut post: Post) -> Result<Post, Error> {
    post.version += 1;
    post.updated_at = txn.now;
    let seq = txn.next_seq().await?;
    txn.store_post(&post, seq).await?;
    tell(txn, seq, &Event::Post(post.clone())).await?;
    Ok(post)
}

async fn by_author(txn: &Txn<'_>, author: &str, id: &str) -> Result<Post, Error> {
    let post = txn.post(id).await?.filter(|post| post.author_id == author);
    Ok(post.ok_or_else(|| Refusal::NoPost(id.to_owned()))?)
}

pub(super) async fn create(txn: &Txn<'_>, new: &NewPost) -> Result<Done, Error> {
    super::accounts::active(txn, &new.author_id).await?;
    match txn.post(&new.post_id).await? {
        Some(post) if post.author_id == new.author_id => return Ok(Done::Post(post)),
        Some(_) => return Err(Refusal::PostIdTaken.into()),
        None => {}
    }
    let post = Post {
        post_id: new.post_id.clone(),
        author_id: new.author_id.clone(),
        content: new.content.clone(),
        status: new.status,
        visibility: new.visibility,
        likers_visible: new.likers_visible,
        count_visible: new.count_visible,
        version: likewise_domain::relation::effective_version(0, txn.epoch),
        created_at: txn.now,
        updated_at: txn.now,
        deleted_at: None,
    };
    Ok(Done::Post(store(txn, post).await?))
}

pub(super) async fn update(
    txn: &Txn<'_>,
    author: &str,
    id: &str,
    version: u64,
    changes: &PostChanges,
) -> Result<Done, Error> {
    super::accounts::active(txn, author).await?;
    let before = by_author(txn, author, id).await?;
    if before.deleted_at.is_some() {
        return Err(Refusal::PostDeleted.into());
    }
    if before.version != version {
        return Err(Refusal::VersionConflict(before.version).into());
    }
    let after = Post {
        content: changes.content.clone().unwrap_or_else(|| before.content.clone()),
        status: changes.status.unwrap_or(before.status),
        visibility: changes.visibility.unwrap_or(before.visibility),
        likers_visible: changes.likers_visible.unwrap_or(before.likers_visible),
        count_visible: changes.count_visible.unwrap_or(before.count_visible),
        ..before.clone()
    };
    transition(Who::Owner, before.status, after.status)?;
    if after == before {
        return Ok(Done::Post(before));
    }
    Ok(Done::Post(store(txn, after).await?))
}

fn transition(who: Who, from: PostStatus, to: PostStatus) -> Result<(), Refusal> {
    if from == to || post_may(who, from, to) {
        return Ok(());
    }
    Err(Refusal::Transition(format!("{from:?}"), format!("{to:?}")))
}

pub(super) async fn delete(txn: &Txn<'_>, author: &str, id: &str, on: bool, grace: Duration) -> Result<Done, Error> {
    let before = by_author(txn, author, id).await?;
    match before.deleted_at {
        Some(deleted_at) if !on && !within_grace(deleted_at, txn.now, grace) => {
            return Err(Refusal::GraceOver.into());
        }
        deleted_at if deleted_at.is_some() == on => return Ok(Done::Post(before)),
        _ => {}
    }
    Ok(Done::Post(store(txn, Post { deleted_at: on.then_some(txn.now), ..before }).await?))
}

pub(super) async fn moderate(txn: &Txn<'_>, id: &str, to: PostStatus, by: &Moderator) -> Result<Done, Error> {
    let before = txn.post(id).await?.ok_or_else(|| Refusal::NoPost(id.to_owned()))?;
    if before.status == to {
        return Ok(Done::Post(before));
    }
    transition(Who::Moderator, before.status, to)?;
    let after = store(txn, Post { status: to, ..before }).await?;
    let kind = if to == PostStatus::TakenDown { "TAKE_DOWN" } else { "LIFT_TAKE_DOWN" };
    txn.record_act(kind, id, &by.actor, &by.reason, after.version).await?;
    Ok(Done::Post(after))
}
