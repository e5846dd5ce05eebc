-- kit.check_server: what decides whether an acknowledged commit can be lost
select
    current_setting('server_version_num')::int,
    current_setting('fsync'),
    current_setting('full_page_writes'),
    current_setting('synchronous_commit')
