//! Generated protobuf code and every conversion to and from model and state.
