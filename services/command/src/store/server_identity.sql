-- command.server_identity: which server this is and the timeline it writes, by the name of its WAL file: the control file lags
select (pg_control_system()).system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
