"""Machine images: by distribution, SSM parameter, name or id."""

from __future__ import annotations

from dataclasses import dataclass

from microshard.backends.ec2.api import Api
from microshard.backends.ec2.errors import CloudError

# Public SSM parameters as documented by their makers (Amazon Linux user guide, Ubuntu on AWS, Debian wiki).
# {arch} is amd64 or arm64, {machine} x86_64 or arm64.
_PARAMETERS = {
    "al2023": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{machine}",
    "ubuntu-22.04": "/aws/service/canonical/ubuntu/server/22.04/stable/current/{arch}/hvm/ebs-gp2/ami-id",
    "ubuntu-24.04": "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id",
    "debian-12": "/aws/service/debian/release/12/latest/{arch}",
}
DISTRIBUTIONS = tuple(_PARAMETERS)
# Accounts whose images may be found by name: Amazon, Canonical, Debian, and one's own.
_OWNERS = ("amazon", "099720109477", "136693071363", "self")
# Login users, by a part of the image's name.
_USERS = (("ubuntu", "ubuntu"), ("debian", "admin"), ("al2023", "ec2-user"), ("amzn", "ec2-user"))
# Parts of the names of images whose python3 is 3.9 or 3.10 (and which have a package python3.11).
_OLD_PYTHON = ("al2023", "ubuntu-jammy-22.04")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can be launched."""

    id: str
    name: str
    architecture: str  # x86_64 or arm64
    root_device: str
    user: str  # to log in as

    @property
    def client_python(self) -> str | None:
        """A Python of 3.11 or newer where the image's own python3 is older; None where it is not."""
        return "/usr/bin/python3.11" if any(part in self.name for part in _OLD_PYTHON) else None


def resolve(api: Api, wish: str, architecture: str) -> Image:
    """The image for a wish: a distribution, `ssm:/path`, `ami-…`, or `name:PATTERN` (the newest that fits).

    Raises CloudError when there is none, or none of this architecture.
    """
    if wish.startswith("ami-"):
        question = {"ImageIds": [wish]}
    elif wish in _PARAMETERS or wish.startswith("ssm:"):
        path = wish.removeprefix("ssm:") if wish.startswith("ssm:") else _PARAMETERS[wish]
        arch = {"x86_64": "amd64"}.get(architecture, architecture)
        question = {"ImageIds": [_parameter(api, path.format(arch=arch, machine=architecture))]}
    elif wish.startswith("name:"):
        names = {"Name": "name", "Values": [wish.removeprefix("name:")]}
        kind = {"Name": "architecture", "Values": [architecture]}
        found = api.pages("describe_images", "Images", Owners=list(_OWNERS), Filters=[names, kind])
        newest = max(found, key=lambda image: str(image.get("CreationDate", "")), default=None)
        if newest is None:
            raise CloudError("DescribeImages", "InvalidAMIID.NotFound", f"no {architecture} image is named {wish[5:]}.")
        return _image(newest)
    else:
        raise CloudError(
            "image", "UnknownImage", f"{wish} is none of {', '.join(DISTRIBUTIONS)}, ssm:/path, ami-…, name:PATTERN."
        )
    found = api.pages("describe_images", "Images", **question)
    if not found:
        raise CloudError("DescribeImages", "InvalidAMIID.NotFound", f"{wish}: there is no such image in {api.region}.")
    image = _image(found[0])
    if image.architecture != architecture:
        raise CloudError(
            "DescribeImages", "WrongArchitecture", f"{wish} is for {image.architecture}, the hosts are {architecture}."
        )
    return image


def _parameter(api: Api, path: str) -> str:
    try:
        return api.parameter(path)
    except CloudError as error:
        if error.code == "ParameterNotFound":
            raise CloudError("GetParameter", error.code, f"{path} does not exist in {api.region}.") from error
        raise


def _image(found: dict[str, object]) -> Image:
    name = str(found.get("Name", ""))
    user = next((user for part, user in _USERS if part in name), "ec2-user")
    return Image(
        str(found["ImageId"]), name, str(found["Architecture"]), str(found.get("RootDeviceName", "/dev/xvda")), user
    )
