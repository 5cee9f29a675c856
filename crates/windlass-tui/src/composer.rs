//! The composer: the editor of prompts, with history, completion and attachments.
