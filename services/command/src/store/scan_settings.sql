-- command.scan_settings: time for a reader to keep up with a scan
set local idle_in_transaction_session_timeout = '60s';
set local statement_timeout = '60s'
