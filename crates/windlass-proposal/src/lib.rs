//! The built-in loop with one answer instead of tools: [`patch_proposal`] has the model propose a patch that the engine
//! checks and applies, [`completion`] has it answer in words. Both wrap the built-in runtime.

pub mod completion;
pub mod patch_proposal;

mod no_tools;
mod shown_files;
