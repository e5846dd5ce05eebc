//! What is answered: [`likes`] (a page's hearts and numbers), [`lists`] (my likes, likers), over [`counts`] (numbers),
//! [`progress`] (how far the counter is) and [`policies`] (who may see what).

pub mod counts;
pub mod likes;
pub mod lists;
pub mod policies;
pub mod progress;
