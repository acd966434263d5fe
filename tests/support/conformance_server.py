"""A server with what MCP's conformance suite looks for: content of each kind, logs, progress, sampling, elicitation."""

import base64
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import AudioContent, EmbeddedResource, ImageContent, SamplingMessage, TextContent, TextResourceContents
from pydantic import BaseModel

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = ImageContent(type="image", data=PIXEL, mime_type="image/png")


class Contact(BaseModel):
    """What the client is asked for."""

    username: str
    email: str


def _resource(uri: str) -> EmbeddedResource:
    text = "This is an embedded resource content."
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type="text/plain", text=text))


def server() -> MCPServer[Any]:
    """The server."""
    mcp: MCPServer[Any] = MCPServer("conformance")
    _add_content(mcp)
    _add_exchanges(mcp)
    _add_resources_and_prompts(mcp)
    return mcp


def _add_content(mcp: MCPServer[Any]) -> None:
    @mcp.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @mcp.tool(structured_output=False)
    def test_image_content() -> list[Any]:
        """An image."""
        return [IMAGE]

    @mcp.tool(structured_output=False)
    def test_audio_content() -> list[Any]:
        """A sound."""
        return [AudioContent(type="audio", data=SOUND, mime_type="audio/wav")]

    @mcp.tool(structured_output=False)
    def test_embedded_resource() -> list[Any]:
        """A resource."""
        return [_resource("test://embedded-resource")]

    @mcp.tool(structured_output=False)
    def test_multiple_content_types() -> list[Any]:
        """Several kinds at once."""
        text = TextContent(type="text", text="Multiple content types test:")
        return [text, IMAGE, _resource("test://mixed-content-resource")]

    @mcp.tool()
    def test_error_handling() -> str:
        """Fail."""
        raise ValueError("This tool intentionally returns an error for testing")


def _add_exchanges(mcp: MCPServer[Any]) -> None:
    @mcp.tool()
    async def test_tool_with_logging(context: Context[Any, Any]) -> str:
        """Log while working."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.info(text)
        return "done"

    @mcp.tool()
    async def test_tool_with_progress(context: Context[Any, Any]) -> str:
        """Report progress."""
        for progress in (0, 50, 100):
            await context.report_progress(progress, 100)
        return "done"

    @mcp.tool()
    async def test_sampling(prompt: str, context: Context[Any, Any]) -> str:
        """Ask the client's model."""
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        answer = await context.session.create_message(messages=[message], max_tokens=100)
        return f"LLM response: {answer.content}"

    @mcp.tool()
    async def test_elicitation(message: str, context: Context[Any, Any]) -> str:
        """Ask the client's user."""
        answer = await context.elicit(message, schema=Contact)
        return f"User response: {answer.action}"


def _add_resources_and_prompts(mcp: MCPServer[Any]) -> None:
    @mcp.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @mcp.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @mcp.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the suite's name
        return f'{{"id":"{id}"}}'

    @mcp.prompt()
    def test_simple_prompt() -> str:
        """A prompt."""
        return "This is a simple prompt for testing."

    @mcp.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @mcp.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's name
        """A prompt with a resource."""
        return [UserMessage(_resource(resourceUri)), UserMessage("Please process the embedded resource above.")]

    @mcp.prompt()
    def test_prompt_with_image() -> list[Any]:
        """A prompt with an image."""
        return [UserMessage(IMAGE), UserMessage("Please analyze the image above.")]
