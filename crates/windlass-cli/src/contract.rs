//! What must hold before a run lands, from flags and settings: which validators look, which paths may be changed, and
//! where the changes go.

use std::sync::Arc;

use windlass_core::validator::Validator;
use windlass_core::workspace::LandTo;
use windlass_engine::Contract;
use windlass_host::workspace::Root;

use crate::args::ContractArgs;
use crate::failure::Failure;
use crate::settings::Settings;

/// The contract of a run.
pub(crate) fn terms(_settings: &Settings, args: &ContractArgs) -> Result<Contract, Failure> {
    let to = match (&args.patch, &args.commit) {
        (Some(file), _) => LandTo::Patch(std::path::absolute(file)?),
        (None, Some(message)) => LandTo::Commit(message.clone()),
        (None, None) => LandTo::Tree,
    };
    Ok(Contract {
        to,
        land_anyway: args.land_anyway,
        allow_no_changes: args.allow_no_changes,
        strict_judge: args.strict_judge,
        write_paths: args.write_path.clone(),
        ..Contract::default()
    })
}

/// Who looks before it lands.
pub(crate) fn validators(
    _settings: &Settings,
    _args: &ContractArgs,
    _root: &Root,
    _isolated: bool,
) -> Result<Vec<Arc<dyn Validator>>, Failure> {
    Ok(Vec::new())
}
