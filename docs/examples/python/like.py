"""Likes and unlikes one video with a client generated from the contracts.

    python3 -m pip install grpcio-tools
    python3 docs/examples/python/like.py --address 127.0.0.1:PORT --token TOKEN --video V9001

`cargo dev up` prints the address and a token. The stubs are generated into a temporary folder.
"""

import argparse
import pathlib
import sys
import tempfile
import uuid

PROTO = pathlib.Path(__file__).resolve().parents[3] / "proto"


def generate(folder: str) -> None:
    """Compiles every contract with the compiler that grpcio-tools ships."""
    from importlib import resources

    from grpc_tools import protoc

    files = [str(path.relative_to(PROTO)) for path in sorted(PROTO.rglob("*.proto"))]
    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    if protoc.main(arguments) != 0:
        sys.exit("the contracts did not compile")
    sys.path.insert(0, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--video", default="V9001")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        generate(folder)
        import grpc
        from likewise.command.v1 import command_pb2, command_pb2_grpc
        from likewise.query.v1 import query_pb2, query_pb2_grpc
        from likewise.types.v1 import types_pb2

        credentials = [("authorization", f"Bearer {arguments.token}")]
        with grpc.insecure_channel(arguments.address) as channel:
            command = command_pb2_grpc.LikeCommandServiceStub(channel)
            query = query_pb2_grpc.LikeQueryServiceStub(channel)

            def set_like(state: int, operation: str) -> command_pb2.SetLikeResponse:
                request = command_pb2.SetLikeRequest(
                    video_id=arguments.video, desired_state=state, operation_id=operation
                )
                return command.SetLike(request, metadata=credentials, timeout=5)

            operation = str(uuid.uuid4())
            liked = set_like(types_pb2.LIKE_STATE_LIKED, operation)
            again = set_like(types_pb2.LIKE_STATE_LIKED, operation)
            assert again.operation == liked.operation, "a retry gets the first verdict"
            page = query.BatchGetLikes(
                query_pb2.BatchGetLikesRequest(video_ids=[arguments.video], position=liked.position),
                metadata=credentials,
                timeout=5,
            )
            assert page.likes[0].my_state == types_pb2.LIKE_STATE_LIKED
            unliked = set_like(types_pb2.LIKE_STATE_UNLIKED, str(uuid.uuid4()))
            assert unliked.current.relation_version > liked.current.relation_version

            try:
                set_like(types_pb2.LIKE_STATE_UNLIKED, operation)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.ALREADY_EXISTS, error
            else:
                sys.exit("an operation id was accepted for another state")

        print(f"liked {arguments.video} as version {liked.operation.relation_version}, the retry agreed,")
        print(f"unliked it as version {unliked.current.relation_version}, and the reused id was refused")


if __name__ == "__main__":
    main()
