//! The terminal: modes, keys, the inline renderer and notifications.
