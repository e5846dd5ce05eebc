//! The count is a projection that can prove itself.
