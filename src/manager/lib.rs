//! The manager: proposer, leader duties, dispatcher, API services, servers.
